"""Gradients of DistributedDataParallel in few bits, for networks that are slow.

    net = DistributedDataParallel(model)
    net.register_comm_hook(dlaunch.torch.Compression("int8"), dlaunch.torch.compressed)

The gradients of each bucket travel in the codec ("bf16", "int8", "fp8", "int4" or "topk") while backpropagation goes on. What
the encoding loses is added to the next gradients (error feedback), so that the mean over many steps is exact. With int4
and topk the weights need more steps than with exact gradients.
"""

import concurrent.futures

import torch

from ._communicator import default_communicator

__all__ = ["Compression", "compressed"]


class Compression:
    """The state of the hook: the codec, and what it has lost of each parameter's gradient. One for each
    DistributedDataParallel.

    communicator: None: that of the process group "dlring" if there is one, else of dlaunch.init()."""

    def __init__(self, codec, *, communicator=None):
        self._comm = communicator or default_communicator()
        self._comm.compressed_average(torch.zeros(0), codec)  # refuses an unknown codec
        self._codec = codec
        self._residuals = {}  # by parameter
        # DDP waits for futures, which somebody has to complete. Averages end in the order of their beginning.
        self._waiter = concurrent.futures.ThreadPoolExecutor(1, "dlaunch compression")

    def _residual(self, parameters):
        """What was lost of the gradients of a bucket, end to end. Buckets change after the first step."""
        for parameter in parameters:
            if parameter not in self._residuals:
                self._residuals[parameter] = torch.zeros(parameter.numel())
        return torch.cat([self._residuals[parameter] for parameter in parameters])

    def _keep(self, parameters, residual):
        self._residuals.update(zip(parameters, residual.split([parameter.numel() for parameter in parameters])))


def compressed(state, bucket):
    """The hook: averages the gradients of a bucket over all ranks."""
    gradients, parameters = bucket.buffer(), bucket.parameters()
    values = gradients.detach().to("cpu", torch.float32).contiguous()
    residual = state._residual(parameters)
    request = state._comm.icompressed_average(values, state._codec, residual=residual, out=values)
    # What it completes on a GPU is in a stream, which the future's own waiters follow.
    future = torch.futures.Future(devices=[gradients.device] if gradients.is_cuda else None)

    def complete():
        try:
            request.wait()
            state._keep(parameters, residual)
            if values.data_ptr() != gradients.data_ptr():
                gradients.copy_(values)
            future.set_result(gradients)
        except Exception as error:
            future.set_exception(error)

    state._waiter.submit(complete)
    return future
