"""Data for an elastic training with PyTorch: a DataLoader whose position in the data is part of the state."""

import hashlib

import torch
import torch.distributed as dist
import torch.utils.data


def _seed(*numbers):
    """A seed that all of these numbers decide. PyTorch's generators on the CPU use only the lower 32 bits of a seed."""
    text = " ".join(map(str, numbers))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def _rank_and_size():
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


class _Order:
    """This rank's batches: the samples of an epoch in their order, cut into global batches; each rank has its share of
    each."""

    def __init__(self, samples, global_batch, shuffle, seed, drop_last):
        if not 1 <= global_batch:
            raise ValueError("a global batch has at least 1 sample")
        if samples < (global_batch if drop_last else 1):
            raise ValueError(f"{samples} samples make no batch")
        self.samples, self.global_batch, self.shuffle, self.seed = samples, global_batch, shuffle, seed
        self.end = samples - samples % global_batch if drop_last else samples
        self.epoch = self.position = 0

    def advance(self):
        self.position += self.global_batch
        if self.position >= self.end:
            self.epoch, self.position = self.epoch + 1, 0

    def __len__(self):
        return -(-(self.end - self.position) // self.global_batch)

    def __iter__(self):
        rank, size = _rank_and_size()
        if self.shuffle:
            generator = torch.Generator().manual_seed(_seed(self.seed, self.epoch))
            order = torch.randperm(self.samples, generator=generator).tolist()
        else:
            order = range(self.samples)
        for first in range(self.position, self.end, self.global_batch):
            batch = order[first:min(first + self.global_batch, self.end)]
            if len(batch) < size:  # no rank goes without
                yield [batch[rank % len(batch)]]
            else:
                yield list(batch[len(batch) * rank // size:len(batch) * (rank + 1) // size])


def _check_loader(dataset, global_batch, shuffle, options):
    """Raises TypeError for arguments that torch's DataLoader takes and this one does not."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise TypeError(
            "elastic.DataLoader: an IterableDataset is not supported, because its position cannot be part of the "
            "state. Use a data set with __len__ and __getitem__, or torch's DataLoader and a value of the state that "
            "holds the position")
    if not hasattr(type(dataset), "__len__") or not hasattr(type(dataset), "__getitem__"):
        raise TypeError(f"elastic.DataLoader: the data set needs __len__ and __getitem__, and "
                        f"{type(dataset).__name__} lacks one of them")
    instead = {"sampler": "the order comes from shuffle and seed",
               "batch_sampler": "the batches come from global_batch, shuffle and seed",
               "batch_size": "global_batch counts the samples of all ranks together",
               "generator": "the order comes from seed"}
    for option, reason in instead.items():
        if options.get(option) is not None:
            raise TypeError(f"elastic.DataLoader: {option} is not supported: {reason}")
        options.pop(option, None)
    if options.get("persistent_workers"):
        raise TypeError("elastic.DataLoader: persistent_workers is not supported: each pass over the loader may "
                        "begin in another round, with other workers")
    if isinstance(global_batch, bool) or not isinstance(global_batch, int):
        raise TypeError(f"elastic.DataLoader: global_batch is the number of samples in one step of all ranks, and "
                        f"not {global_batch!r}")
    if shuffle not in (True, False, None):
        raise TypeError(f"elastic.DataLoader: shuffle is True or False, and not {shuffle!r}")


class DataLoader(torch.utils.data.DataLoader):
    """torch's DataLoader, which goes through a data set epoch by epoch, one global batch of all ranks in each step. Its
    position is part of the state: whichever worker dies, each sample of an epoch is in exactly one committed step.
    Iterating goes through the rest of the epoch. The order depends only on seed and epoch, so a job of any size sees
    the same batches. If a batch does not divide evenly some ranks have one sample more, and a last batch with fewer
    samples than ranks has some twice.

    The random numbers of worker processes (num_workers), as of augmentations, depend on seed, epoch, rank, and the
    position at which the pass begins. So they differ between ranks, a pass that goes on in the middle of an epoch
    repeats none, and a replacement has those of the lost rank.

    epoch, position: where the next batch begins. options: as torch's, except sampler, batch_sampler and batch_size. The
    data set must have __len__ and __getitem__, like a torch.utils.data.Dataset. Unsupported arguments raise TypeError
    with a sentence."""

    def __init__(self, dataset, global_batch, *, shuffle=True, seed=0, drop_last=False, **options):
        _check_loader(dataset, global_batch, shuffle, options)
        self.order = _Order(len(dataset), global_batch, shuffle, seed, drop_last)
        self._seeds = torch.Generator()  # passing over the data uses none of the program's random numbers
        super().__init__(dataset, batch_sampler=self.order, generator=self._seeds, **options)

    @property
    def epoch(self):
        return self.order.epoch

    @property
    def position(self):
        return self.order.position

    def __iter__(self):
        rank, _ = _rank_and_size()
        self._seeds.manual_seed(_seed(self.order.seed, self.order.epoch, self.order.position, rank))
        for batch in super().__iter__():
            self.order.advance()
            yield batch

    def state_dict(self):
        return {"epoch": self.order.epoch, "position": self.order.position}

    def load_state_dict(self, place):
        self.order.epoch, self.order.position = place["epoch"], place["position"]
        if self.order.position >= self.order.end:  # the snapshot had more samples
            self.order.epoch, self.order.position = self.order.epoch + 1, 0
