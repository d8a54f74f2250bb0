"""Local training with an outer optimizer, for networks that are slow: LocalSGD, DiLoCo, streaming DiLoCo.

    import dlaunch.torch

    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    outer = dlaunch.torch.DiLoCo(model, inner_steps=500, codec="int4")
    for x, y in loader:                    # this rank's own samples
        optimizer.zero_grad()
        loss(model(x), y).backward()       # without DistributedDataParallel
        optimizer.step()
        outer.step()
    outer.finish()                         # the parameters are equal on all ranks

dlaunch.Outer has the manual. To go on in another process, save state_dict() of model, optimizer and outer on each rank
and load them there: the training continues bit for bit.
"""

import torch

from .._outer import LocalTraining, Outer
from ._communicator import default_communicator

__all__ = ["DiLoCo", "LocalSGD"]


class _Outer(Outer):
    """With tensors for its memory, and so without NumPy."""

    @staticmethod
    def _array(memory):
        return torch.frombuffer(memory, dtype=torch.uint8)


class DiLoCo(LocalTraining):
    """parameters: a module, or parameters that are on their device and stay there. Rank 0's are copied to all ranks.
    Those with 16 bits, or on a GPU, are copied to the host when an average is due, and back when one is applied; these
    copies take 4 bytes for each element. Buffers are not among them: each rank keeps its own, such as the running
    statistics of BatchNorm, from the start on. Average those before an evaluation, or use GroupNorm or LayerNorm.

    communicator: None: that of the process group "dlring" if there is one, else of dlaunch.init(). elastic: it belongs
    to a TorchState, which brings its communicator: see dlaunch.torch.elastic. The other options are those of
    dlaunch.Outer."""

    def __init__(self, parameters, *, communicator=None, elastic=False, **options):
        if isinstance(parameters, torch.nn.Module):
            parameters = parameters.parameters()
        self._parameters = [parameter.detach() for parameter in parameters]
        for parameter in self._parameters:
            if parameter.dtype not in (torch.float32, torch.bfloat16, torch.float16):
                raise TypeError(f"DiLoCo: a parameter has type {parameter.dtype}, and must have float32, bfloat16 or "
                                f"float16")
        places = [parameter.data_ptr() for parameter in self._parameters if parameter.numel() > 0]
        if len(set(places)) < len(places):
            raise ValueError("DiLoCo: two parameters share memory: give each parameter once")
        self._on_host = [self._host_memory(parameter) for parameter in self._parameters]
        self.elastic, self._options, self._made = elastic, options, None
        if elastic and communicator is not None:
            raise ValueError("DiLoCo: elastic=True has the communicator of its TorchState: leave out communicator")
        if not elastic:
            self._begin(communicator or default_communicator())

    def _begin(self, comm, copies=True):
        """Makes the outer optimizer. copies: with rank 0's parameters on all ranks."""
        self._take()
        if copies:
            comm.broadcast_list(self._on_host)
            self._give()
        self._made = _Outer(comm, self._on_host, **self._options)

    @property
    def _outer(self):
        if self._made is None:
            raise RuntimeError("a DiLoCo with elastic=True belongs to a TorchState, and begins with its run()")
        return self._made

    @staticmethod
    def _host_memory(parameter):
        """The parameter itself, where that is float32 in the host's memory."""
        if parameter.device.type == "cpu" and parameter.dtype == torch.float32 and parameter.is_contiguous():
            return parameter
        return torch.empty(parameter.shape, dtype=torch.float32)

    def _copies(self):
        return ((parameter, memory) for parameter, memory in zip(self._parameters, self._on_host)
                if parameter.data_ptr() != memory.data_ptr())

    def _take(self):
        for parameter, memory in self._copies():
            memory.copy_(parameter)

    def _give(self):
        for parameter, memory in self._copies():
            parameter.copy_(memory)

    def _around(self, call, changes=True):
        self._take()
        call()
        if changes:
            self._give()

    def trains(self, part):
        """Whether a module or an optimizer has some of these parameters."""
        groups = part.param_groups if isinstance(part, torch.optim.Optimizer) else [{"params": part.parameters()}]
        mine = {parameter.data_ptr() for parameter in self._parameters if parameter.numel() > 0}
        return any(parameter.data_ptr() in mine for group in groups for parameter in group["params"])

    def step(self):
        """After each step of the inner optimizer."""
        if self._outer.due:
            self._around(self._outer.step, self._outer.changes)
        else:
            self._outer.step()

    def finish(self):
        """Averages everything now: the parameters are equal on all ranks then. For the end, or an evaluation. With sites
        `steps` may be larger afterwards: the others were further, and the parameters are theirs."""
        self._around(self._outer.finish)

    @property
    def sites(self):
        """The dlaunch.Sites over which this averages; None: over the ranks of this job."""
        return self._outer.sites

    @property
    def steps(self):
        """The number of steps so far."""
        return self._outer.steps

    @property
    def in_flight(self):
        """Whether an average runs in the background, or has ended there: the same on all ranks."""
        return self._outer.in_flight

    def state_dict(self):
        """This rank's state, as tensors, without the parameters."""
        return self._outer.state_dict()

    def load_state_dict(self, state):
        """Takes the state of a DiLoCo with the same options. Load the parameters into the module, too."""
        self._outer.load_state_dict({name: part.cpu() for name, part in state.items()})


class LocalSGD(DiLoCo):
    """The parameters become their average after every inner_steps steps; buffers stay each rank's own. Options are those
    of DiLoCo, without learning_rate, momentum and nesterov."""

    def __init__(self, parameters, *, inner_steps, communicator=None, elastic=False, codec="none", fragments=1, delay=0,
                 mixing=0.0, sites=None):
        super().__init__(parameters, communicator=communicator, elastic=elastic, inner_steps=inner_steps,
                         learning_rate=1.0, momentum=0.0, codec=codec, fragments=fragments, delay=delay, mixing=mixing, sites=sites)
