"""The names of environment variables that dlaunch and its workers agree on, as in base/contract.h."""

AGENT = "DLAUNCH_AGENT"
ROUND_DIR = "DLAUNCH_ROUND_DIR"
