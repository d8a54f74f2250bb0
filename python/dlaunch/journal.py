"""Prints and replays the journal of a site (dlaunch --site-journal).

    python -m dlaunch.journal journals/alps.journal
    python -m dlaunch.journal journals/alps.journal --replay

Each line is a merge: when, its number, the sites whose contributions are in it, its bytes, and which sites are missing.
--replay computes the state of the outer optimizer again, from each snapshot on, and compares its hash after each merge. It
ends with 1 if one differs.
"""

import argparse
import sys
import time

from . import _core
from ._errors import Error


class _Printer:
    """Prints entries as they are read, and counts."""

    def __init__(self, replays):
        self.replays = replays
        self.names = []  # of all sites, by the last start
        self.wrong = self.replayed = 0

    def take(self, entry):
        if entry["kind"] == "start":
            self.names = entry["sites"]
        print(self.line(entry) + self.verdict(entry))

    def line(self, entry):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["when_ns"] / 1e9))
        when += f".{entry['when_ns'] // 1000000 % 1000:03}"
        if entry["kind"] == "start":
            return f"{when}  {entry['site']} starts to write"
        place = f"{when}  {entry['kind']} {entry['number']}, epoch {entry['epoch']}"
        if entry["kind"] == "snapshot":
            return f"{place}: {entry['bytes']} bytes"
        if entry["kind"] == "founding":
            return f"{place}: {', '.join(entry['members'])} begin together"
        missing = [name for name in self.names if name not in entry["contributed"]]
        text = f"{place}: {', '.join(entry['contributed'])}: {entry['bytes']} bytes"
        return text + (f"; without {', '.join(missing)}" if missing else "")

    def verdict(self, entry):
        if not self.replays or entry["replayed"] is None:
            return ""
        same = entry["replayed"] == entry["hash"]
        self.wrong += not same
        self.replayed += entry["kind"] == "merge"
        return f"  {'=' if same else 'DIFFERS'} {entry['replayed']:016x}"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m dlaunch.journal", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="NAME.journal of a site")
    parser.add_argument("--replay", action="store_true", help="compute the states again, and compare")
    options = parser.parse_args(arguments)
    printer = _Printer(options.replay)
    try:
        torn = _core.read_journal(options.file, options.replay, printer.take)
    except Error as error:
        sys.stdout.flush()
        print(f"dlaunch.journal: {error}", file=sys.stderr)
        return 1
    if torn:
        print("The last record was not written to its end.")
    if options.replay:
        print(f"{printer.replayed} merges replayed, {printer.wrong} of the states differ")
    return 1 if printer.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
