#!/usr/bin/env python3
"""Reads the log of elastic_worker with --log-steps, in the order of time, and reports broken rules: two
rounds at once, members that do not agree, lost steps.

usage: check_rounds.py LOG          prints the broken rules; nothing if there are none
       check_rounds.py LOG newest   "ROUND SIZE STEP" of the newest round that all have entered"""

import collections
import sys


class Round:
    def __init__(self, size):
        self.size, self.pids, self.begins, self.members, self.steps = size, {}, {}, {}, []


def read(path):
    rounds, late, newest, wrong = {}, collections.defaultdict(set), 0, []
    with open(path, encoding="ascii") as log:
        for line in log:
            words = line.split()
            if not line.endswith("\n") or words[0] in ("start", "dies"):
                continue
            number, rank = int(words[1]), int(words[3])
            if words[0] == "round":
                of = rounds.setdefault(number, Round(int(words[5])))
                if of.size != int(words[5]) or rank in of.pids:
                    wrong.append(f"members of round {number} do not agree: {line}")
                of.pids[rank], of.begins[rank] = int(words[7]), int(words[9])
            elif words[0] == "members":  # it has met all others
                rounds[number].members[rank] = words[5]
                newest = max(newest, number)
            else:
                rounds[number].steps.append(int(words[5]))
                # Members of a round that is over may finish the step that all had contributed to.
                if number < newest:
                    late[number].add(int(words[5]))
                    if len(late[number]) > 1:
                        wrong.append(f"round {number} gets on while there is round {newest}: {line}")
    step = 0
    for number in sorted(rounds):
        of = rounds[number]
        if len(set(of.members.values())) > 1:
            wrong.append(f"round {number}: members {of.members}")
        if len(of.members) < of.size:
            continue
        if len(set(of.begins.values())) > 1:
            wrong.append(f"round {number} begins with steps {of.begins}")
        if min(of.begins.values()) < step:
            wrong.append(f"round {number} begins with step {of.begins}, one before it with {step}")
        step = max(of.begins.values())
    return rounds, wrong


def main():
    rounds, wrong = read(sys.argv[1])
    if len(sys.argv) < 3:
        print("".join(f"{what}\n" for what in wrong[:10]), end="")
        return
    whole = [number for number, of in rounds.items() if len(of.members) == of.size]
    number = max(whole, default=0)
    of = rounds.get(number, Round(0))
    print(number, of.size, max(of.steps, default=0))


if __name__ == "__main__":
    main()
