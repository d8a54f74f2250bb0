"""The base of what averages the gradients of a DistributedDataParallel and keeps something from step to step."""

import concurrent.futures
import contextlib

import torch

from .._errors import PeerLost
from .._outer import LocalTraining
from ._communicator import default_communicator


def future_for(tensor):
    """A future for the hook's result. What completes on a GPU is in a stream, which the future's own waiters follow."""
    return torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else None)


def views_of(memory, parameters):
    """The part of each parameter in memory that has them end to end."""
    return dict(zip(parameters, memory.split([parameter.numel() for parameter in parameters])))


def gradients_of(bucket):
    """Views of the gradients in the bucket. DistributedDataParallel lays each out as its parameter if that is dense,
    and row by row otherwise; bucket.gradients() has row-major views of all."""
    views = []
    for gradient, parameter in zip(bucket.gradients(), bucket.parameters()):
        if not parameter.is_contiguous() and torch.empty_like(parameter, device="meta").stride() == parameter.stride():
            gradient = gradient.as_strided(parameter.shape, parameter.stride())
        views.append(gradient)
    return views


def _as_one(tensors):
    """The memory of these tensors as one tensor, if they lie in it end to end and row by row; else None."""
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.dtype != first.dtype or tensor.data_ptr() != end or not tensor.is_contiguous():
            return None
        end += tensor.numel() * tensor.element_size()
    storage = first.untyped_storage() if hasattr(first, "untyped_storage") else first.storage()
    if end > storage.data_ptr() + storage.nbytes():  # other memory follows by chance
        return None
    return first.detach().as_strided((sum(tensor.numel() for tensor in tensors),), (1,))


def on_host(tensors):
    """These tensors, end to end, each in its logical order (row by row), as float32 in the host's memory: their own
    memory if they lie so in it, else a copy."""
    one = _as_one(tensors)
    if one is None:
        one = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    return one.to("cpu", torch.float32)


def put(values, tensors):
    """The other way round."""
    one = _as_one(tensors)
    if one is not None:
        if one.data_ptr() != values.data_ptr():
            one.copy_(values)
        return
    values = values.to(tensors[0].device)
    for tensor, part in zip(tensors, values.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(part.view(tensor.shape))


class GradientExchange(LocalTraining):
    """The state of a hook. _average(bucket), of a subclass, is the hook; backward() calls it in its own thread.

    own: the tensors that differ between ranks, by name. common: those that are equal on all ranks. They are the whole
    state between two steps, and stay where they are."""

    def __init__(self, parameters, communicator, elastic):
        self.name = type(self).__name__
        if isinstance(parameters, torch.nn.Module):
            parameters = parameters.parameters()
        self.parameters = None if parameters is None else list(parameters)
        self._refuse_complex(self.parameters or [])
        if elastic and self.parameters is None:
            raise ValueError(f"{self.name}: elastic=True needs the module, or its parameters")
        if elastic and communicator is not None:
            raise ValueError(f"{self.name}: elastic=True has the communicator of its TorchState: leave out "
                             f"communicator")
        self.elastic = elastic
        # rank: whose the own tensors are, from 1 on; 0: they are still zero.
        self.own = {"rank": torch.zeros(1, dtype=torch.int64, device="cpu")}
        self.common = {}
        # DDP waits for futures, which somebody has to complete.
        self._worker = concurrent.futures.ThreadPoolExecutor(1, f"dlaunch {self.name}")
        self._comm = None if elastic else communicator or default_communicator()
        self._lost = False  # a call of this round has ended with PeerLost

    def _average(self, bucket):
        raise NotImplementedError

    def _refuse_complex(self, parameters):
        """Their gradients lie in a bucket as pairs of real numbers or as complex ones, as PyTorch's release has it, and
        what a rank keeps of a parameter has one real number for each element."""
        if any(parameter.is_complex() and parameter.requires_grad for parameter in parameters):
            raise TypeError(f"{self.name}: the module has complex parameters, whose gradients this hook cannot average: "
                            f"leave the hook out, and DistributedDataParallel averages them exactly")

    def _hook(self, bucket):
        self._refuse_complex(bucket.parameters())
        with self._noting_loss():
            return self._average(bucket)

    @contextlib.contextmanager
    def _noting_loss(self):
        """DistributedDataParallel turns PeerLost into another exception. And a communicator of this object's own may
        see a loss before the main one."""
        try:
            yield
        except PeerLost:
            self._lost = True
            raise

    def _in_background(self, work):
        """The future of work() in the worker's thread."""

        def call():
            with self._noting_loss():
                return work()

        return self._worker.submit(call)

    def _ready(self):
        """At the beginning of _average()."""
        if self._comm is None:
            raise RuntimeError(f"a {self.name} with elastic=True belongs to a TorchState, and begins with its run()")
        self.own["rank"].fill_(self._comm.rank + 1)

    def _complete(self, futures, work):
        """Calls work() in the worker's thread, and then sets futures to their buffers. futures: pairs of both."""

        def complete():
            try:
                with self._noting_loss():
                    work()
            except Exception as error:
                for future, _ in futures:
                    future.set_exception(error)
            else:
                for future, buffer in futures:
                    future.set_result(buffer)

        self._worker.submit(complete)

    def _settle(self):
        """After the round's operations have ended: waits until nothing more changes the state."""
        self._worker.submit(lambda: None).result()
        self._lost = False

    def _restored(self):
        """The state was copied into the tensors. In a larger round a new rank gets a copy of another rank's own
        tensors, and what they hold must count once."""
        if self._comm is not None and int(self.own["rank"]) not in (0, self._comm.rank + 1):
            for tensor in self.own.values():
                tensor.zero_()

    def state_dict(self):
        """A copy of this rank's state between two steps. Each rank has its own."""
        if self.parameters is None:
            raise RuntimeError(f"{self.name}: to have a state_dict() it needs the module, or its parameters")
        return {name: tensor.detach().cpu().clone() for name, tensor in {**self.own, **self.common}.items()}

    def load_state_dict(self, state):
        """Takes the state of the same rank, from an object with the same options and parameters. The training then
        continues bit for bit. A rank that gets the state of another one begins without what that has kept."""
        mine = {**self.own, **self.common}
        if {name: tensor.shape for name, tensor in state.items()} != {name: mine[name].shape for name in mine}:
            raise ValueError(f"{self.name}: the state belongs to other options or parameters")
        for name, tensor in mine.items():
            tensor.copy_(state[name])
        self._restored()
