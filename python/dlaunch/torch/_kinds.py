"""The kinds of parts of an elastic state, and their memory: modules, optimizers, tensors, objects with a state_dict."""

import copy
from collections import OrderedDict, defaultdict

import torch

from ._exchange import GradientExchange


# -- Tensors whose memory is part of the state.


def _is_dense(tensor):
    expected = 1
    for stride, size in sorted((s, n) for n, s in zip(tensor.shape, tensor.stride()) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _described(tensor):
    return f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}" if torch.is_tensor(tensor) else f"{tensor}"


class _Place:
    """A tensor of the state, where its owner keeps it: holder[key], or the data of a parameter."""
    __slots__ = ("name", "parameter", "holder", "key", "memory")

    def __init__(self, name, tensor, holder=None, key=None):
        if tensor.layout != torch.strided or not _is_dense(tensor):
            raise ValueError(f"{name}: its memory is sparse or has holes: make it contiguous()")
        self.name = name
        self.parameter = tensor if holder is None else None
        self.holder, self.key = holder, key
        self.memory = tensor.detach()  # does not move

    def adopt(self):
        """Copies a tensor that the owner has assigned into the memory, and gives the memory back to the owner."""
        now = self.parameter if self.holder is None else self.holder.get(self.key)
        if torch.is_tensor(now) and now.data_ptr() == self.memory.data_ptr():
            return
        was, is_now = _described(self.memory), _described(now)
        if is_now != was:
            raise ValueError(f"{self.name} was {was} when the state was made, and is {is_now}")
        self.memory.copy_(now.detach())
        self.put()

    def put(self):
        if self.holder is not None:
            self.holder[self.key] = self.memory
        elif self.parameter.data_ptr() != self.memory.data_ptr():
            self.parameter.data = self.memory


# -- Kinds of parts: each has places, and values() that set_values() restores. own: those of the places that differ
# between ranks.


class _Tensor:
    own = ()

    def __init__(self, name, tensor):
        self.part = tensor
        self.buffers = self.places = [_Place(name, tensor)]

    def adopt(self):
        for place in self.places:
            place.adopt()

    def values(self):
        return None

    def set_values(self, values):
        for place in self.places:
            place.put()
            if place.parameter is not None:
                place.parameter.grad = None  # of an interrupted backward()


class _Module(_Tensor):
    def __init__(self, name, module):
        self.part = self.module = module
        self.buffers, self.places = [], []
        seen = set()
        for key, parameter in module.named_parameters():
            self.places.append(_Place(f"{name}.{key}", parameter))
        for path, part in module.named_modules():
            for key, buffer in part._buffers.items():
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    where = f"{name}.{path}.{key}" if path else f"{name}.{key}"
                    self.buffers.append(_Place(where, buffer, part._buffers, key))
        self.places += self.buffers

    def values(self):
        """The switches: a peer may be lost in an evaluation, or after parameters were frozen."""
        return ([part.training for part in self.module.modules()],
                [parameter.requires_grad for parameter in self.module.parameters()])

    def set_values(self, values):
        super().set_values(values)
        for part, training in zip(self.module.modules(), values[0]):
            part.training = training
        for parameter, trained in zip(self.module.parameters(), values[1]):
            parameter.requires_grad_(trained)


class _Optimizer:
    """Its first step makes its state: a step of a copy, on a parameter like each of its own, shows the coming state."""
    own = ()

    def __init__(self, name, optimizer):
        self.name, self.part, self.optimizer = name, optimizer, optimizer
        self.buffers, self.parameters = [], []
        self.kept = []  # for each parameter: the places of its tensors by key
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                made = self._state_after_a_step(group, parameter)
                self.kept.append({key: _Place(f"{name}.{len(self.kept)}.{key}", torch.zeros_like(value), {}, key)
                                  for key, value in made.items() if torch.is_tensor(value)})
                self.parameters.append(parameter)
        self.places = [place for kept in self.kept for place in kept.values()]

    def _state_after_a_step(self, group, parameter):
        trial = object.__new__(type(self.optimizer))
        trial.__dict__.update(self.optimizer.__dict__)
        trial.__dict__.pop("step", None)  # set by a scheduler for the optimizer itself
        for hooks in [key for key in trial.__dict__ if key.endswith("_hooks")]:
            trial.__dict__[hooks] = OrderedDict()
        like = torch.zeros_like(parameter).requires_grad_()
        like.grad = torch.zeros_like(like)
        trial.state = defaultdict(dict)
        if parameter in self.optimizer.state:  # Adagrad has a state from the start
            trial.state[like] = copy.deepcopy(self.optimizer.state[parameter])
        trial.param_groups = [{**group, "params": [like]}]
        try:
            type(self.optimizer).step(trial)
        except Exception as error:
            raise ValueError(f"{self.name}: {type(self.optimizer).__name__} does not show its whole state in its "
                             f"first step ({error}): it cannot be part of an elastic state") from error
        return trial.state.get(like, {})

    def values(self):
        groups = [{key: value for key, value in group.items() if key != "params"}
                  for group in self.optimizer.param_groups]
        states = []
        for number, parameter in enumerate(self.parameters):
            state = self.optimizer.state.get(parameter)
            states.append(state and {key: None if key in self.kept[number] and torch.is_tensor(value)
                                     else (value,) for key, value in state.items()})
        return groups, states

    def set_values(self, values):
        groups, states = values
        for group, saved in zip(self.optimizer.param_groups, groups):
            group.update(saved)
        for parameter, state, kept in zip(self.parameters, states, self.kept):
            parameter.grad = None
            self.optimizer.state.pop(parameter, None)
            if state is not None:
                self.optimizer.state[parameter] = {
                    key: kept[key].memory if value is None else value[0] for key, value in state.items()}

    def adopt(self):
        """Copies the optimizer's own tensors into their kept memory."""
        if sum(len(group["params"]) for group in self.optimizer.param_groups) != len(self.parameters):
            raise ValueError(f"{self.name}: its parameters differ from those when the state was made")
        for number, (parameter, kept) in enumerate(zip(self.parameters, self.kept)):
            state = self.optimizer.state.get(parameter, {})
            for key, value in state.items():
                if not torch.is_tensor(value):
                    continue
                if key not in kept:
                    raise ValueError(f"{self.name}: parameter {number} has a new '{key}', which the first step did "
                                     f"not make: the state has no room for it")
                kept[key].holder = state
                kept[key].adopt()


class _Dict:
    """Schedulers, scalers, loaders: objects with a state_dict."""
    buffers = places = own = ()

    def __init__(self, name, thing):
        self.part = self.thing = thing
        self.values = thing.state_dict

    def set_values(self, values):
        getattr(self.thing, "_per_optimizer_states", {}).clear()  # a GradScaler's, of an interrupted step
        self.thing.load_state_dict(values)

    def adopt(self):
        pass


class _Exchange(_Tensor):
    """The state of a DistributedDataParallel's hook."""
    buffers = ()

    def __init__(self, name, exchange):
        self.part = exchange
        self.own, common = ([_Place(f"{name}.{key}", tensor, tensors, key) for key, tensor in tensors.items()
                             if tensor.numel() > 0] for tensors in (exchange.own, exchange.common))
        self.places = self.own + common

    def set_values(self, values):
        super().set_values(values)
        self.part._restored()


def kind_of(part):
    """The class that keeps this part; None: a plain value."""
    if isinstance(part, torch.nn.Module):
        return _Module
    if isinstance(part, torch.optim.Optimizer):
        return _Optimizer
    if torch.is_tensor(part):
        return _Tensor
    if isinstance(part, GradientExchange):
        return _Exchange
    return _Dict if hasattr(part, "state_dict") and hasattr(part, "load_state_dict") else None
