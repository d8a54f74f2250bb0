"""Gradients of DistributedDataParallel, averaged over the ranks that come in time.

    net = DistributedDataParallel(model)
    averages = dlaunch.torch.Partial(model, may_miss=1, wait=0.01, late="carry")
    averages.register(net)
    for x, y in loader:
        optimizer.zero_grad()
        if averages.late:
            averages.skip(net)                 # takes the averages that the others have made
        else:
            loss(net(x), y).backward()
        optimizer.step()
    if averages.finish(net):                   # what is still kept
        optimizer.step()

The average of a bucket is over once all ranks but may_miss have given their gradients and one of them has waited for
`wait` seconds, or once all ranks have. Every rank gets the same bits in every step, and so the parameters stay equal on
all ranks. A rank that comes later gets the same averages, without waiting. Its gradients count nowhere (late="drop"),
or in the next step in which it is in time (late="carry"). An average divides by the number of gradients in it; a gradient
that was kept counts as another one. So each gradient counts once, or not at all.

A rank that is slow all the time would be late in every step, and the others would wait for it at last. So where late is
true it should skip(): it then computes no gradients in this step, and catches up. All ranks make the same number of
steps. Code that acts on the step, such as a scheduler or a commit, belongs into each of them, skipped or not.

Nothing else may make the ranks wait for each other in each step, and register() checks that: give
DistributedDataParallel broadcast_buffers=False if the module has buffers, as BatchNorm has, and no
find_unused_parameters. A module with complex parameters raises TypeError: without the hook, DistributedDataParallel
averages their gradients over all ranks. In an elastic job a commit() waits for all ranks, so call it seldom; what the
ranks keep is part of it. After a loss each rank has what it kept at the last commit, and the replacement of the lost
rank has what that one kept; the ranks repeat the steps since then. If the next round is smaller, what the lost ranks
kept counts nowhere.
"""

import torch

from ._exchange import GradientExchange, future_for, gradients_of, on_host, put, views_of

__all__ = ["Partial", "partial"]


def partial(state, bucket):
    """The hook: averages the gradients of a bucket over the ranks that come in time, as its state, a Partial, says."""
    return state._hook(bucket)


class Partial(GradientExchange):
    """The state of the hook. One for each DistributedDataParallel; the calls in the background have a communicator of
    their own.

    parameters: the module, or its parameters. may_miss: how many ranks a bucket does not wait for; it waits for one in
    any case. Or need: the ranks whose gradients it waits for, as a number, or as a function of the number of ranks, which an
    elastic job may change. wait: the seconds for which it also waits for more. late: "drop" or "carry". max_behind: no
    rank gets more than so many steps ahead of another; each of n ranks keeps 1/n of the averages of so many steps. (The
    ranks make the first two steps together.) communicator: None: that of the process group "dlring" if there is one,
    else of dlaunch.init(). elastic: it belongs to a TorchState, which brings its communicator."""

    _KNOWN = 2  # DistributedDataParallel makes other buckets before its second step, which all ranks do together

    def __init__(self, parameters, *, may_miss=None, need=None, wait=0.0, late="drop", max_behind=16, communicator=None,
                 elastic=False):
        super().__init__(parameters, communicator, elastic)
        if late not in ("drop", "carry"):
            raise ValueError(f"Partial: late is {late!r}, and must be 'drop' or 'carry'")
        if (may_miss is None) == (need is None):
            raise ValueError("Partial: give one of may_miss and need")
        if may_miss is not None and may_miss < 0:
            raise ValueError(f"Partial: may_miss is {may_miss}, and must be at least 0")
        self._may_miss, self._need, self._wait, self._max_behind = may_miss, need, wait, max_behind
        if self._comm is not None:
            self._needed()
        self._kept = {}  # for each parameter: the sum of gradients, and their number
        if late == "carry":
            size = sum(parameter.numel() for parameter in self.parameters)
            self.own["kept"] = torch.zeros(size, dtype=torch.float32, device="cpu")
            self.own["number"] = torch.zeros(len(self.parameters), dtype=torch.float32, device="cpu")
            numbers = self.own["number"].split(1)
            sums = views_of(self.own["kept"], self.parameters)
            self._kept = {parameter: (sums[parameter], number) for parameter, number in zip(self.parameters, numbers)}
        self._counted = {parameter: 0 for parameter in self.parameters}
        self._new_round()

    def _new_round(self):
        self._ranks = None  # a communicator of this object's own
        self._buckets, self._last_buckets, self._steps = [], [], 0

    def register(self, net):
        """Registers the hook at a DistributedDataParallel. ValueError: net would make all ranks wait for each other in
        each step."""
        self._check(net)
        net.register_comm_hook(self, partial)

    @property
    def contributions(self):
        """How many gradients of each parameter are in the last average; the same on all ranks."""
        return [self._counted[parameter] for parameter in self.parameters]

    @property
    def late(self):
        """Whether other ranks have ended a step, or a part of it, without this one, or this one keeps gradients that
        the next average can take at once."""
        if self._steps < self._KNOWN:
            return False
        behind = self._in_background(lambda: self._ranks.some_behind()).result()
        return behind > 0 or self._keeps()

    def skip(self, net):
        """In place of forward and backward: gives what this rank has kept, and sets the gradients of the parameters."""
        self._set_averages(net, "skip")

    def finish(self, net):
        """Collective, after the last step, or before an evaluation: waits for all ranks, and sets the gradients to the
        average of all that ranks have kept. False, on all ranks: nobody has kept any."""
        if not self._last_buckets:
            return False
        self._set_averages(net, "finish")
        return any(self.contributions)

    def _keeps(self):
        return bool(self._kept) and bool(self.own["number"].any())

    def _needed(self):
        """The ranks whose gradients a bucket waits for."""
        size = self._comm.size
        if self._may_miss is not None:
            return max(1, size - self._may_miss)
        need = self._need(size) if callable(self._need) else self._need
        if not 1 <= need <= size:
            raise ValueError(f"Partial: need is {need}, and must be between 1 and the number of ranks, which is {size}")
        return need

    def _set_averages(self, net, call):
        if self._steps < self._KNOWN and call == "skip":
            raise RuntimeError("Partial: skip() needs two steps of backward() before it: ask late first")
        self._check(net)
        self._ready()
        need = self._comm.size if call == "finish" else self._needed()
        for parameters in self._last_buckets:
            means = self._in_background(self._exchange(parameters, None, need)).result()
            with torch.no_grad():
                for parameter, mean in views_of(means, parameters).items():
                    if parameter.grad is None:
                        parameter.grad = torch.empty_like(parameter)
                    parameter.grad.copy_(mean.view(parameter.shape))

    @staticmethod
    def _check(net):
        module = getattr(net, "module", net)
        if getattr(net, "find_unused_parameters", False):
            raise ValueError("Partial: DistributedDataParallel has find_unused_parameters=True, with which all ranks "
                             "wait for each other in each step")
        if getattr(net, "broadcast_buffers", False) and any(True for _ in module.buffers()):
            raise ValueError("Partial: the module has buffers, which DistributedDataParallel sends to all ranks in "
                             "each step: give it broadcast_buffers=False")

    def _average(self, bucket):
        self._ready()
        if self._ranks is None:
            self._ranks = self._comm.split(0, self._comm.rank)
        gradients, parameters = gradients_of(bucket), bucket.parameters()
        self._buckets.append(parameters)
        if bucket.is_last():
            self._last_buckets, self._buckets = self._buckets, []
            self._steps += 1
        exchange = self._exchange(parameters, on_host(gradients), self._needed())
        future = future_for(bucket.buffer())
        self._complete([(future, bucket.buffer())], lambda: put(exchange(), gradients))
        return future

    def _exchange(self, parameters, gradients, need):
        """The work of the background for a bucket, which returns the averages. gradients: None: this rank has none."""
        number = 0 if gradients is None else 1
        numbers = torch.full((len(parameters),), float(number), dtype=torch.float32, device="cpu")
        if self._kept:
            numbers += torch.cat([self._kept[parameter][1] for parameter in parameters])
            kept = torch.cat([self._kept[parameter][0] for parameter in parameters])
            gradients = kept if gradients is None else gradients + kept
        # The numbers travel behind the gradients: buckets change, so that parameters of one have different numbers.
        given = torch.cat([gradients, numbers]) if numbers.any() else None
        size = sum(parameter.numel() for parameter in parameters)
        total = torch.empty(size + len(parameters), dtype=torch.float32, device="cpu")
        # The library counts calls, and a step has one for each bucket.
        max_behind = self._max_behind * (len(self._last_buckets) if self._steps >= self._KNOWN else 1)

        def work():
            fate = self._ranks.all_reduce_some(given, need, wait=self._wait, max_behind=max_behind, out=total)[2]
            if self._kept and given is not None:
                self._keep(parameters, given if fate == "dropped" else torch.zeros_like(given))
            sums, counts = total[:size], total[size:]
            for parameter, part, count in zip(parameters, views_of(sums, parameters).values(), counts.tolist()):
                self._counted[parameter] = int(count)
                part.div_(max(1.0, count))
            return sums

        return work

    def _keep(self, parameters, values):
        size = len(values) - len(parameters)
        sums = views_of(values[:size], parameters)
        for parameter, number in zip(parameters, values[size:]):
            self._kept[parameter][0].copy_(sums[parameter])
            self._kept[parameter][1].fill_(number)

    def _settle(self):
        super()._settle()
        self._new_round()
