"""The names of environment variables that dlaunch and its workers agree on, as in base/contract.h."""

AGENT = "DLAUNCH_AGENT"
SITES = "DLAUNCH_SITES"
ROUND_DIR = "DLAUNCH_ROUND_DIR"
