"""Gradients of DistributedDataParallel in fewer bytes, for networks that are slow.

    net = DistributedDataParallel(model)
    net.register_comm_hook(dlaunch.torch.Compression("int8", model), dlaunch.torch.compressed)

The gradients of each bucket travel in the codec ("bf16", "int8", "fp8", "int4" or "topk") while backpropagation goes
on. What the encoding loses is added to the next gradients (error feedback), so that the mean over many steps is exact.
With int4 and topk the weights need more steps than with exact gradients.

    net.register_comm_hook(dlaunch.torch.PowerSGD(model, matrix_approximation_rank=2), dlaunch.torch.compressed)

sends two thin matrices for the gradient of each matrix (Vogels et al., NeurIPS 2019): for n x m elements and rank r,
r (n + m) elements.

A module with complex parameters raises TypeError: leave the hook out, and DistributedDataParallel averages their
gradients exactly.

What the hook keeps from step to step is its state_dict(). With elastic=True a TorchState keeps it, and a training that
loses a rank continues bit for bit: see dlaunch.torch.elastic.
"""

import math

import torch

from ._exchange import GradientExchange, future_for, gradients_of, on_host, put, views_of

__all__ = ["Compression", "PowerSGD", "compressed"]

_CODECS = "none", "bf16", "int8", "fp8", "int4", "topk"  # those of dlaunch.Communicator.compressed_average()


def compressed(state, bucket):
    """The hook: averages the gradients of a bucket over all ranks, as its state, a Compression or PowerSGD, says."""
    return state._hook(bucket)


class Compression(GradientExchange):
    """The state of the hook: the codec, and what it has lost of each parameter's gradient. One for each
    DistributedDataParallel.

    parameters: the module, or its parameters; state_dict() needs them. bucket_cap_mb: with parameters, how many of them
    travel together, as for DistributedDataParallel; without, its own buckets do, which are others in its first step.
    communicator: None: that of the process group "dlring" if there is one, else of dlaunch.init(). elastic: it belongs
    to a TorchState, which brings its communicator."""

    def __init__(self, codec, parameters=None, *, bucket_cap_mb=25.0, communicator=None, elastic=False):
        if codec not in _CODECS:
            raise ValueError(f"Compression: the codec is {codec!r}, and must be one of {', '.join(_CODECS)}")
        super().__init__(parameters, communicator, elastic)
        self._codec, self._bucket_bytes = codec, bucket_cap_mb * 2**20
        self._residuals = {}  # by parameter
        if self.parameters is not None:
            self.own["residual"] = torch.zeros(sum(parameter.numel() for parameter in self.parameters),
                                               dtype=torch.float32, device="cpu")
            # In the order of the buckets, so that those of a bucket lie end to end.
            self._residuals = views_of(self.own["residual"], self.parameters[::-1])

    def _new_buckets(self):
        """Buckets of this object's own: what the codec loses depends on them, and those of a DistributedDataParallel
        are others in its first step, as after a restart."""
        buckets, room = [], 0
        for parameter in reversed(self.parameters):
            if not parameter.requires_grad:
                continue
            if not buckets or (buckets[-1] and room < parameter.numel() * 4):
                # The first one is small, so that sending begins early.
                room = self._bucket_bytes if buckets else min(self._bucket_bytes, 2**20)
                buckets.append([])
            buckets[-1].append(parameter)
            room -= parameter.numel() * 4
        return buckets

    def _average(self, bucket):
        self._ready()
        parameters, future = bucket.parameters(), future_for(bucket.buffer())
        if bucket.index() == 0:
            self._gradients, self._futures = {}, []
            self._buckets = [] if self.parameters is None else self._new_buckets()
        if self.parameters is None:
            self._buckets.append(parameters)
            for parameter in parameters:
                if parameter not in self._residuals:
                    self._residuals[parameter] = torch.zeros(parameter.numel(), dtype=torch.float32, device="cpu")
        elif not all(parameter in self._residuals for parameter in parameters):
            raise ValueError("Compression: the DistributedDataParallel has a parameter that this was not given")
        self._gradients.update(zip(parameters, gradients_of(bucket)))
        self._futures.append((future, bucket.buffer(), set(parameters)))
        # The same on all ranks, as the order of the buckets is.
        while self._buckets and (bucket.is_last() or all(one in self._gradients for one in self._buckets[0])):
            self._begin(tuple(one for one in self._buckets.pop(0) if one in self._gradients))
        return future

    def _begin(self, parameters):
        """Begins the average of these gradients, and completes the futures that wait for no others."""
        if not parameters:
            return
        gradients = [self._gradients[parameter] for parameter in parameters]
        residuals = [self._residuals[parameter] for parameter in parameters]
        values, residual = on_host(gradients), on_host(residuals)
        request = self._comm.icompressed_average(values, self._codec, residual=residual, out=values)
        for _, _, missing in self._futures:
            missing.difference_update(parameters)
        complete = [(future, buffer) for future, buffer, missing in self._futures if not missing]
        self._futures = [one for one in self._futures if one[2]]

        def finish():
            request.wait()
            put(values, gradients)
            put(residual, residuals)

        self._complete(complete, finish)


class PowerSGD(GradientExchange):
    """The state of the hook: gradients of matrices travel as products of two matrices of low rank, those of vectors as
    they are. Options have the names and defaults of torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook:

    matrix_approximation_rank: the rank of the products. start_powerSGD_iter: the first steps average exact gradients.
    min_compression_rate: a matrix travels as it is if this would not save so many times its size. use_error_feedback:
    what the product lacks is added to the next gradient. warm_start: each step begins with the last one's matrix, and
    so comes closer to the best product; otherwise with random numbers, which random_seed decides.

    PyTorch's own hook begins its later sums when earlier ones end, so that ranks on a CPU may begin them in different
    orders; and it keeps errors by bucket, which a restart changes. This one begins all sums in one order and keeps
    errors by parameter. The ranks need processors of one kind and the same number of threads, because each multiplies
    the products for itself.

    A gradient with an infinity or a NaN on one rank becomes NaN on all, as a whole. What this keeps of its parameter
    then begins again, so that the next step is an ordinary one. An optimizer that would apply the NaN is the program's
    affair: torch.cuda.amp.GradScaler, for instance, leaves such a step out.

    parameters: the module, or its parameters. communicator, elastic: as for Compression."""

    def __init__(self, parameters, *, matrix_approximation_rank=1, start_powerSGD_iter=1000, min_compression_rate=2,
                 use_error_feedback=True, warm_start=True, random_seed=0, communicator=None, elastic=False):
        super().__init__(parameters, communicator, elastic)
        if matrix_approximation_rank < 1 or start_powerSGD_iter < 0 or min_compression_rate <= 0:
            raise ValueError("PowerSGD: matrix_approximation_rank is at least 1, start_powerSGD_iter at least 0, and "
                             "min_compression_rate above 0")
        self._start = start_powerSGD_iter
        self.common["iter"] = torch.zeros(1, dtype=torch.int64, device="cpu")
        self._iter = 0
        self._half = None  # the bucket whose Ps are on their way
        shapes = {}
        for parameter in self.parameters:
            rows = parameter.shape[0] if parameter.dim() > 1 else 0
            columns = parameter.numel() // rows if rows > 0 else 0
            rank = min(rows, columns, matrix_approximation_rank)
            if (rows + columns) * rank * min_compression_rate < rows * columns:
                shapes[parameter] = rows, columns, rank
        self._matrices = {}
        for number, parameter in enumerate(self.parameters):
            if parameter in shapes:
                self._matrices[parameter] = self._new_matrix(number, parameter, shapes[parameter], use_error_feedback,
                                                             warm_start, random_seed)

    def _new_matrix(self, number, parameter, shape, use_error_feedback, warm_start, random_seed):
        rows, columns, rank = shape

        def random(step):
            # The same on all ranks, and after a restart.
            seed = (random_seed * 1_000_003 + number) * 1_000_003 + step
            return torch.randn(columns, rank, dtype=torch.float32, device="cpu",
                               generator=torch.Generator("cpu").manual_seed(seed % (1 << 63)))

        error = q = None
        if use_error_feedback:
            error = self.own[f"error.{number}"] = torch.zeros(rows, columns, dtype=torch.float32,
                                                                device=parameter.device)
        if warm_start:
            q = self.common[f"q.{number}"] = random(0).to(parameter.device)
        return _Matrix(error, q, random)

    def _average(self, bucket):
        self._ready()
        # All ranks begin all averages here, in the order of buckets.
        self._second_half()
        if bucket.index() == 0:
            self._iter = int(self.common["iter"])
        half = _Bucket(self, bucket, self._iter)
        if half.matrices:
            self._half = half
        else:
            self._complete([(half.future, half.buffer)], half.finish)
        if bucket.is_last():
            self._second_half()
            self.common["iter"] += 1
        return half.future

    def _second_half(self):
        half, self._half = self._half, None
        if half is not None:
            half.average_qs()
            self._complete([(half.future, half.buffer)], half.finish)

    def _settle(self):
        self._half = None
        super()._settle()


def _orthogonal(matrix):
    return torch.linalg.qr(matrix)[0]


class _Matrix:
    """What PowerSGD keeps of one parameter, if it does: the error and Q."""

    def __init__(self, error, q, random):
        self.error, self.q, self.random = error, q, random

    def multiply(self, gradient, step):
        """P. gradient: of this rank."""
        matrix = gradient.detach().to(torch.float32).reshape(gradient.shape[0], -1)
        self.sent = matrix.clone() if self.error is None else matrix + self.error
        return self.sent @ _orthogonal(self.random(step).to(matrix.device) if self.q is None else self.q)

    def multiply_back(self, p, is_finite):
        """Q, for the average of P. If that is not finite, no Q is, on any rank."""
        self.p = _orthogonal(p) if is_finite else p
        return self.sent.t() @ self.p

    def take(self, q, is_finite, gradient, step):
        """Sets the gradient to the average, which the average of Q gives."""
        if is_finite:
            self._take(q, gradient)
        else:
            self._start_over(gradient, step)
        for tensor in (self.sent, self.p):  # other streams than this thread's have made them
            if tensor.is_cuda:
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
        self.sent = self.p = None

    def _start_over(self, gradient, step):
        gradient.fill_(math.nan)
        if self.error is not None:
            self.error.zero_()
        if self.q is not None:
            self.q.copy_(self.random(step))

    def _take(self, q, gradient):
        product = self.p @ q.t()
        if self.error is not None:
            torch.sub(self.sent, product, out=self.error)
        if self.q is not None:
            self.q.copy_(q)
        gradient.copy_(product.view(gradient.shape))


class _Flight:
    """Tensors that become their average over the ranks, by end()."""

    def __init__(self, comm, tensors):
        self._tensors = tensors
        self._values = on_host(tensors)
        # The order of its additions depends on no bucket.
        self._request = comm.icompressed_average(self._values, "none", out=self._values)

    def end(self, checked):
        """Returns for each of the last `checked` tensors whether it is finite."""
        self._request.wait()
        put(self._values, self._tensors)
        parts = self._values.split([tensor.numel() for tensor in self._tensors])
        return [bool(part.isfinite().all()) for part in parts[len(parts) - checked:]]


class _Bucket:
    """The averages of a bucket's gradients in one step: first those of vectors and the Ps, then the Qs."""

    def __init__(self, state, bucket, step):
        self._comm, self.buffer = state._comm, bucket.buffer()
        self.future, self._step = future_for(self.buffer), step
        whole, self.matrices = [], []
        for parameter, gradient in zip(bucket.parameters(), gradients_of(bucket)):
            matrix = state._matrices.get(parameter) if step >= state._start else None
            if matrix is None:
                whole.append(gradient)
            else:
                self.matrices.append((matrix, gradient))
        self._parts = [matrix.multiply(gradient, step) for matrix, gradient in self.matrices]
        self._flight = _Flight(self._comm, whole + self._parts)

    def average_qs(self):
        finite = self._flight.end(len(self._parts))
        self._parts = [matrix.multiply_back(p, is_finite)
                       for (matrix, _), p, is_finite in zip(self.matrices, self._parts, finite)]
        self._flight = _Flight(self._comm, self._parts)

    def finish(self):
        finite = self._flight.end(len(self.matrices))
        for (matrix, gradient), q, is_finite in zip(self.matrices, self._parts, finite):
            matrix.take(q, is_finite, gradient, self._step)
