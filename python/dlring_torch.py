"""The old name of dlaunch.torch."""

import sys
import warnings

import dlaunch.torch

warnings.warn("dlring_torch is dlaunch.torch now: import that", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = dlaunch.torch
