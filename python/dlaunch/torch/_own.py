"""The per-rank part of a PyTorch state, beside the memory that is the same on all ranks: see _sharded and _folders."""

import os

import torch
import torch.distributed as dist

from .._parts import Parts
from . import _folders, _sharded

_EVERYBODY = 1 << 20  # more than any number of ranks: all keep a copy


class Own(Parts):
    """Base of TorchState. Its __dict__ also has: _outers (DiLoCo by name), _exchanges (states of hooks), _replicas
    (None: nothing is sharded), _with_random, _block, _shards (_sharded.ShardedParts or None), _checkpoints (None, or
    folder, interval and number), and _resumed (a folder)."""

    _RESUMED = "_resumed_commits"  # among the plain values: the commits of the folder that the job began with

    def _own(self, shard_replicas, random_state):
        if shard_replicas is not None and (isinstance(shard_replicas, bool) or not isinstance(shard_replicas, int)
                                           or shard_replicas < 0):
            raise ValueError(f"shard_replicas is how many ranks keep a copy of each rank's shards, and not "
                             f"{shard_replicas!r}")
        return {"_replicas": shard_replicas, "_with_random": bool(random_state), "_block": _sharded.Block(),
                "_shards": None, "_checkpoints": None, "_resumed": None}

    def sharded(self, **parts):
        """Collective, within train(), once in each round. Takes modules whose parameters are DTensors, as fully_shard()
        and parallelize_module() make them, their optimizers, and the schedulers of these. Loads the last commit into
        them, cut for the ranks of this round; without a commit they stay as they are. They are attributes of the state,
        too."""
        self._for_train("sharded")
        if self._replicas is None:
            raise RuntimeError("sharded() needs a state that keeps shards: TorchState(shard_replicas=1, ...)")
        for name in parts:
            if hasattr(type(self), name) or name in self._plain or name in self._valued:
                raise ValueError(f"a state uses '{name}' for something else: take another name")
        shards = _sharded.ShardedParts(parts)
        loaded = self._load_shards(shards)
        self._parts.update(parts)
        self.__dict__["_shards"] = shards
        if not loaded and self._resumed is not None:
            _folders.load(self._resumed, shards, self, {}, False)
        if loaded or self._resumed is not None:
            self._load_random()  # making the model has used random numbers

    def checkpoints(self, folder, every, keep=1):
        """Also saves every `every`-th commit to FOLDER/commit-N, as save() does; a restarted job begins from the newest
        complete one, with any number of ranks. Keeps `keep` older ones beside it. All ranks wait until it is written.
        Call it before run()."""
        if self._in_train():
            raise RuntimeError("checkpoints() comes before run()")
        self._for_folders("checkpoints")
        if every < 1 or keep < 0:
            raise ValueError("checkpoints: every is at least 1, and keep at least 0")
        _folders.check()
        self.__dict__["_checkpoints"] = os.fspath(folder), every, keep
        self._plain[self._RESUMED] = 0

    def save(self, folder):
        """Collective, within train(): saves the present state as a folder of torch.distributed.checkpoint, which can
        load it without dlaunch: modules and optimizers under the keys of get_state_dict() after their names, as in
        {"model": ..., "optimizer": ...}; values under their names. All ranks must see the same folder."""
        self._for_train("save")
        self._for_folders("save")
        _folders.save(os.fspath(folder), self._all_parts(), self)

    def load(self, folder):
        """Collective, within train(): loads a folder of save() or torch.distributed.checkpoint.save() into the state,
        cut for the ranks of this round. Parts that are not in the folder stay as they are. Folders hold pickled values:
        only load what you trust."""
        self._for_train("load")
        self._for_folders("load")
        _folders.load(os.fspath(folder), self._all_parts(), self, self._tensors(), True)

    # -- For run().

    def _begin_own(self):
        if self._keeps_own():
            self._block.write(self._comm.rank, None, self._with_random)
            self._kept.keep_own(self._block.memory)

    def _shard_replicas(self):
        if self._replicas is None:
            # With 1 the loss of two neighbours is fatal; the remedy is in the manual of elastic.py.
            return 1 if self._outers or self._exchanges else _EVERYBODY
        return self._replicas

    def _keeps_own(self):
        return self._with_random or self._replicas is not None

    def _resume(self):
        """Loads the newest folder, if there is no commit."""
        if self._checkpoints is None or self.commits > 0:
            return
        found = _folders.newest(self._checkpoints[0])
        self.__dict__["_resumed"] = found
        if found is not None:
            _folders.load(found, self._in_place(), self, self._tensors(), True)
            self._plain[self._RESUMED] = _folders.number(found)

    def _save(self):
        self._for_train("commit")
        if self._keeps_own():
            self._block.write(self._comm.rank, self._shards, self._with_random)
            self._kept.set_own(self._block.memory)
        super()._save()
        if self._checkpoints is not None:
            self._save_if_due()

    def _save_if_due(self):
        folder, every, keep = self._checkpoints
        if self.commits % every == 0:
            _folders.save_next(folder, self._plain[self._RESUMED] + self.commits, keep, self._all_parts(), self)

    def _load(self):
        super()._load()
        self._load_random()
        if self._shards is not None:  # restore(): of this rank, in this round
            blocks = self._blocks()
            if len(blocks) != 1 or not self._is_mine(blocks[0][0], self._shards):
                raise RuntimeError("restore(): the number of ranks has changed since the last commit")
            self._fill(self._shards, self._shards.make(_sharded.described(blocks)), blocks)

    def _recover(self):
        self.__dict__["_shards"] = None  # it belonged to the last round
        self.__dict__["_resumed"] = None
        super()._recover()

    def _blocks(self):
        return _sharded.blocks_of(_sharded.as_memory(self._kept.own)) if self._keeps_own() else []

    def _load_random(self):
        if not self._with_random:
            return
        for head, _ in self._blocks():
            if head["rank"] == self._comm.rank and head["random"] is not None:
                _sharded.set_random_state(head["random"])

    def _is_mine(self, head, shards):
        return head["rank"] == self._comm.rank and _sharded.covers(shards.tensors(), head)

    @staticmethod
    def _fill(shards, tensors, blocks):
        _sharded.fill(tensors, blocks)
        shards.set_values(blocks[0][0]["values"])

    def _load_shards(self, shards):
        """Collective. False: there was no commit of them."""
        memory = _sharded.as_memory(self._kept.own)
        blocks = _sharded.blocks_of(memory)
        there = any(head["tensors"] for head, _ in blocks)
        tensors = shards.make(_sharded.described(blocks)) if there else None
        mine = there and len(blocks) == 1 and self._is_mine(blocks[0][0], shards)
        asked = torch.tensor([int(there), int(not mine)])
        dist.all_reduce(asked, dist.ReduceOp.MAX)
        if not asked[0]:
            return False
        if not asked[1]:
            self._fill(shards, tensors, blocks)
            return True
        first = [(_sharded.described(blocks), blocks[0][0]["values"])] if there else [None]
        dist.broadcast_object_list(first, 0)
        tensors = shards.make(first[0][0])
        for of_rank in _sharded.blocks_by_rank(memory):
            _sharded.fill(tensors, reversed(of_rank))
        shards.set_values(first[0][1])
        return True

    # -- All parts, for folders.

    def _for_folders(self, call):
        if self._exchanges:
            raise RuntimeError(f"{call}() keeps one state for all ranks, and a {self._exchanges[0].name} has one for "
                               f"each: use snapshots()")
        if self._outers:
            raise RuntimeError(f"{call}() keeps one model for all ranks, and in local training each has its own: use "
                               f"snapshots()")

    def _in_place(self):
        return _sharded.ShardedParts({name: kind.part for name, kind in self._valued.items()
                                      if not torch.is_tensor(kind.part)})

    def _all_parts(self):
        return self._in_place() if self._shards is None else self._in_place().with_others(self._shards)

    def _tensors(self):
        return {name: kind.part for name, kind in self._valued.items() if torch.is_tensor(kind.part)}
