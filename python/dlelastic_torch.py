"""The old name of dlaunch.torch.elastic."""

import sys
import warnings

import dlaunch.torch.elastic

warnings.warn("dlelastic_torch is dlaunch.torch.elastic now: import that", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = dlaunch.torch.elastic
