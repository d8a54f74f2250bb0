"""Local training with an outer optimizer: LocalSGD, DiLoCo, streaming DiLoCo."""

import os

from . import _contract, _core


class Sites:
    """The sites of a training, which dlaunch --sites names: groups of hosts behind slow lines, each with a job of its own.
    An Outer, DiLoCo or LocalSGD of such a job averages over them by itself; it has its Sites as `sites`. Give it your own
    for other options:

        sites = dlaunch.Sites(comm, late="drop")
        outer = dlaunch.Outer(comm, [w, bias], sites=sites)
        while outer.steps < 10000:     # a site that comes back, or was late, skips steps
            a step of the inner optimizer
            outer.step()
        outer.finish()                 # equal at all sites

    sites: "NAME=HOST:PORT,…", the same at all sites; site: the name of this one; grace: how long a merge waits for late
    sites, in seconds; timeout: after so many seconds of silence a site is cut off; wait: after so many seconds without a
    quorum the next step raises an error; linger: after finish() a site waits so many seconds for those that it has lost;
    journal: a folder. None: as the options of dlaunch say. late: what becomes of a contribution that comes too late for its merge: "carry": it is part of the next
    one; "drop". <dlaunch/sites.h> is the full manual."""

    def __init__(self, communicator, *, sites=None, site=None, grace=None, timeout=None, wait=None, linger=None, journal=None,
                 late="carry"):
        if late not in ("carry", "drop"):
            raise ValueError(f"Sites: late must be 'carry' or 'drop', and is {late!r}")
        self._core = _core.new_sites(communicator, sites=sites, site=site, grace=grace, timeout=timeout, wait=wait,
                                     linger=linger, journal=journal, drops_late=late == "drop")

    @property
    def info(self):
        """A dict with facts as of the last merge here: the names of all `sites` and of this `site`; the number of the last
        merge (`merges`), who `contributed` to it, and who are `members` now; how many contributions were too late
        (`carried`), how often this site has skipped steps (`jumps`); on rank 0 `bytes_sent` and `bytes_received` by
        site."""
        return self._core.info

    def close(self):
        """Waits until the other sites that are connected have the last merge, and after finish() also for those that are
        lost, for `linger` seconds at most. Then this site leaves the others. The end of the program does
        the same. An Outer with these sites can do no more steps."""
        self._core.close()


class LocalTraining:
    """Base of what averages parameters that differ between ranks, for checks of the states."""


class Outer(LocalTraining):
    """The outer optimizer of local training, for networks that are slow: each rank trains its own parameters, and every
    `inner_steps` steps an outer SGD applies the average of what the ranks have moved.

        outer = dlaunch.Outer(comm, [w, bias], inner_steps=500, codec="int4")   # float32 arrays, equal on all ranks
        for each step:
            a step of the inner optimizer, in place, on this rank alone
            outer.step()
        outer.finish()                                                          # equal on all ranks again

    The defaults are those of DiLoCo (Douillard et al., arXiv 2311.08105): learning rate 0.7, Nesterov momentum 0.9.
    learning_rate=1, momentum=0 is LocalSGD (Stich, ICLR 2019): the parameters become their average. Streaming DiLoCo
    (Douillard et al., arXiv 2501.18512) averages fragments in turn, in the background:

    codec: how the averages travel: "none", "bf16", "int8", "fp8", "int4" or "topk". What the encoding loses comes with
    the next average (error feedback).
    fragments: parts of the parameters that are averaged in turn, each after every inner_steps steps.
    delay: steps for which an average runs in the background before it is applied.
    mixing: the share of a rank's own parameters that stays when an average is applied.
    nesterov: None: if there is momentum.
    sites: Sites to average over. None: those of dlaunch --sites, if there are any; False: only the ranks of this job. One
    Outer of a program averages over the sites: give the others sites=False.

    tensors: arrays in host memory that stay where they are; all calls change them in place. Making an Outer is not
    collective; step() and finish() are. After an error in an average the state and the tensors are undefined, and each
    call repeats the error, until they are restored. A value that is not finite on one rank comes to all by the average.
    <dlaunch/outer.h> is the full manual."""

    _FORM = slice(16, 24)  # in `shared`: a hash of the options and sizes that the state depends on

    def __init__(self, communicator, tensors, *, inner_steps=500, learning_rate=0.7, momentum=0.9, nesterov=None,
                 codec="none", fragments=1, delay=0, mixing=0.0, sites=None):
        self.tensors = list(tensors)
        if sites is None and _contract.SITES in os.environ:
            sites = Sites(communicator)
        self.sites = sites or None
        self._core = _core.new_outer(communicator, self.tensors, inner_steps=inner_steps, learning_rate=learning_rate,
                                     momentum=momentum, nesterov=momentum > 0 if nesterov is None else nesterov,
                                     codec=codec, fragments=fragments, delay=delay, mixing=mixing,
                                     sites=self.sites and self.sites._core)

    def step(self):
        """After each step of the inner optimizer. Collective in the steps in which an average is due. Reads or changes
        the tensors only if `due`."""
        self._core.step()

    def finish(self):
        """Averages everything now: the tensors are equal on all ranks then. For the end, or an evaluation. With sites
        `steps` may be larger afterwards: the others were further, and the tensors are theirs."""
        self._core.finish()

    @property
    def due(self):
        """Whether the next step() reads or changes the tensors."""
        return self._core.due

    @property
    def changes(self):
        """Whether the next step() changes the tensors."""
        return self._core.changes

    @property
    def steps(self):
        """The number of steps so far."""
        return self._core.steps

    @property
    def in_flight(self):
        """Whether an average runs in the background, or has ended there: the same on all ranks."""
        return self._core.in_flight

    # -- The state.

    @property
    def shared(self):
        """The memory, as bytes, that is equal on all ranks after settle()."""
        return self._memory()[:self._core.shared_bytes]

    @property
    def residual(self):
        """This rank's memory, as bytes: what the codec has lost and the next averages bring."""
        return self._memory()[self._core.shared_bytes:]

    def _memory(self):
        return self._array(self._core)

    @staticmethod
    def _array(memory):
        """The bytes of this memory, in place."""
        import numpy
        return numpy.frombuffer(memory, dtype=numpy.uint8)

    def settle(self):
        """Waits for averages in the background, so that the state is complete, before a commit. They are applied when
        they would have been."""
        self._core.settle()

    def restored(self):
        """The state's memory, or another round, is there: drops what is in the background, and errors of averages. Call
        it, or settle(), also before you copy a state into the memory."""
        self._core.restored()

    def state_dict(self):
        """A copy of the state, without the tensors. Each rank has its own. Waits for averages in the background."""
        self.settle()
        copy, shared_bytes = self._array(bytearray(self._core)), self._core.shared_bytes
        return {"shared": copy[:shared_bytes], "residual": copy[shared_bytes:]}

    def load_state_dict(self, state):
        """The state of an Outer with the same options and tensors; load the tensors, too. The training then continues
        bit for bit."""
        parts = [(name, state[name], getattr(self, name)) for name in ("shared", "residual")]
        for name, given, memory in parts:
            if len(given) != len(memory):
                raise ValueError(f"Outer: the state has {len(given)} bytes as '{name}', and needs {len(memory)}: it "
                                 f"belongs to other options or tensors")
        if bytes(state["shared"][self._FORM]) != bytes(self.shared[self._FORM]):
            raise ValueError("Outer: the state belongs to another inner_steps, fragments, delay, momentum or codec, or to "
                             "other tensors")
        self.restored()
        for _, given, memory in parts:
            memory[:] = given
