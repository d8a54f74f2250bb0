"""What the built dlaunch says of itself."""

import functools
import os
import subprocess


class Dlaunch:
    """build: the build folder, which has cli/dlaunch."""

    def __init__(self, build):
        self.program = build / "cli" / "dlaunch"
        if not self.program.exists():
            raise SystemExit(f"{self.program} is not there: the pages of options come from it. Build it first.")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("DLAUNCH_")}

    @functools.lru_cache(maxsize=None)
    def says(self, *words):
        """What it prints, started with these words; SystemExit where it ends with an error."""
        done = subprocess.run([self.program, *words], text=True, capture_output=True, env=self.environment)
        if done.returncode != 0:
            raise SystemExit(f"dlaunch {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout
