"""Elastic states as folders of torch.distributed.checkpoint."""

import os
import pickle
import re
import shutil

import torch
import torch.distributed as dist

from . import _sharded

_RANDOM = "dlaunch_random"  # in a folder: each rank's random numbers' state
_COMPLETE = ".metadata"     # written last


def check():
    """Raises if this PyTorch is too old."""
    try:
        from torch.distributed.checkpoint import load, save  # noqa: F401
    except ImportError:
        raise RuntimeError(f"PyTorch {torch.__version__} has no torch.distributed.checkpoint.save(): its folders "
                           f"need PyTorch 2.2 or newer") from None


# -- Writing.


def _optimizer_state(parts, optimizer):
    state, groups = {}, []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state[parts.names[id(parameter)]] = dict(optimizer.state.get(parameter, {}))
        groups.append({**group, "params": [parts.names[id(parameter)] for parameter in group["params"]]})
    return {"state": state, "param_groups": groups}


def _content(parts, state):
    content = {name: value for name, value in state._plain.items() if name != state._RESUMED}
    content.update(state._tensors())
    for name, module in parts.modules.items():
        content[name] = module.state_dict()
    for name, optimizer in parts.optimizers.items():
        content[name] = _optimizer_state(parts, optimizer)
    for name, other in parts.others.items():
        content[name] = other.state_dict()
    if state._with_random:
        everybody = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, _sharded.random_state())
        content[_RANDOM] = {str(rank): pickle.dumps(one, protocol=4) for rank, one in enumerate(everybody)}
    return content


def save(folder, parts, state):
    check()
    import torch.distributed.checkpoint as checkpoint
    checkpoint.save(_content(parts, state), checkpoint_id=folder)


def number(folder):
    return int(folder.rpartition("-")[2])


def _complete(folder):
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = [os.path.join(folder, name) for name in names if re.fullmatch(r"commit-\d+", name)]
    return sorted((path for path in found if os.path.exists(os.path.join(path, _COMPLETE))), key=number)


def newest(folder):
    """Collective: rank 0 decides."""
    found = [None]
    if dist.get_rank() == 0:
        found = _complete(folder)[-1:] or [None]
    dist.broadcast_object_list(found, 0)
    return found[0]


def save_next(folder, commit, keep, parts, state):
    """Collective. Keeps `keep` older ones and removes the rest."""
    save(os.path.join(folder, f"commit-{commit}"), parts, state)
    if dist.get_rank() == 0:
        for old in _complete(folder)[:-1 - keep]:
            shutil.rmtree(old, ignore_errors=True)


# -- Reading.


def _described(metadata):
    return {key: (str(it.properties.dtype), tuple(it.size)) for key, it in metadata.state_dict_metadata.items()
            if hasattr(it, "properties")}


def _nested(values, paths):
    """Nests values by their paths: {"loader.epoch": 3} becomes {"loader": {"epoch": 3}}."""
    tree = {}
    for key, value in values.items():
        path = paths.get(key, (key,))
        at = tree
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = value
    return {name: _lists(part) for name, part in tree.items()}


def _lists(tree):
    if not isinstance(tree, dict):
        return tree
    if tree and all(isinstance(key, int) for key in tree):
        return [_lists(tree[index]) for index in sorted(tree)]
    return {key: _lists(value) for key, value in tree.items()}


def _top(key, paths):
    return str(paths.get(key, (key,))[0])


def load(folder, parts, state, tensors, with_values):
    """Collective. Fills parts, and tensors by name. with_values: plain ones and random numbers, too."""
    check()
    import torch.distributed.checkpoint as checkpoint
    metadata = checkpoint.FileSystemReader(folder).read_metadata()
    paths = metadata.planner_data if isinstance(metadata.planner_data, dict) else {}
    described = _described(metadata)
    there = {_top(key, paths) for key in metadata.state_dict_metadata}
    parts = parts.those_in(there)
    wanted = parts.make(described)
    wanted.update({name: tensor for name, tensor in tensors.items() if name in there})
    names = {*parts.optimizers, *parts.others}
    if with_values:
        names.update(state._plain, [_RANDOM] if state._with_random else [])
    values = {}
    for key in metadata.state_dict_metadata:
        if key not in wanted and _top(key, paths) in names:
            values[key] = torch.empty(described[key][1], dtype=_sharded.dtype_of(described[key][0])) \
                if key in described else None
    everything = {**wanted, **values}
    checkpoint.load(everything, checkpoint_id=folder)
    _take(parts, state, _nested({key: everything[key] for key in values}, paths))


def _take(parts, state, values):
    for name, optimizer in parts.optimizers.items():
        groups = values.get(name, {}).get("param_groups", [])
        for group, saved in zip(optimizer.param_groups, groups):
            group.update({key: value for key, value in saved.items() if key != "params"})
    for name, other in parts.others.items():
        other.load_state_dict(values[name])
    for name in state._plain:
        if name in values:
            state._plain[name] = values[name]
    mine = values.get(_RANDOM, {}).get(str(dist.get_rank()))
    if mine is not None:
        _sharded.set_random_state(pickle.loads(mine))
