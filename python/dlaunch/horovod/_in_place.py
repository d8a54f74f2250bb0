"""dlaunch --horovod: each imported module of horovod is the module of that name in dlaunch.horovod."""

import importlib
import importlib.util
import sys

_OURS = "dlaunch."


class _Alias:
    """Finds and loads horovod.x as dlaunch.horovod.x: the same module under both names."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if not name.startswith("horovod.") or importlib.util.find_spec(_OURS + name) is None:
            return None
        return importlib.util.spec_from_loader(name, _Alias)

    @staticmethod
    def create_module(spec):
        module = importlib.import_module(_OURS + spec.name)
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module):
        alias = module.__spec__
        module.__spec__ = alias.loader_state  # the import of the alias has replaced it


def take(name):
    """Takes over the package `name`, horovod, while it is imported."""
    sys.meta_path.insert(0, _Alias)
    sys.modules[name] = importlib.import_module(_OURS + name)
