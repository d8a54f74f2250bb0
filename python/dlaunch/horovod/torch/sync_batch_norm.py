"""Batch normalization over the batches of all ranks."""

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .mpi_ops import Sum, allreduce


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d to 3d with the batches of all ranks as one. In training all ranks must call it together,
    each with any number of samples."""

    def _check_input_dim(self, x):
        if x.dim() < 2:
            raise ValueError(f"SyncBatchNorm takes tensors of 2 or more dimensions, not of {x.dim()}")

    def forward(self, x):
        self._check_input_dim(x)
        if not self.training and self.track_running_stats:
            return torch.nn.functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False,
                                                  0.0, self.eps)
        others = [0, *range(2, x.dim())]
        shape = [1, -1] + [1] * (x.dim() - 2)
        exact = x.double() if x.dtype == torch.float64 else x.float()
        count = exact.new_tensor([float(x.numel() // x.shape[1])])
        sums = allreduce(torch.cat([exact.sum(others), count]), op=Sum)
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centered = exact - mean.reshape(shape)
        variance = allreduce((centered * centered).sum(others), op=Sum) / count
        if self.track_running_stats:
            self._track(mean.detach(), variance.detach() * (count / (count - 1).clamp(min=1)))
        out = centered * torch.rsqrt(variance + self.eps).reshape(shape)
        if self.affine:
            out = out * self.weight.reshape(shape) + self.bias.reshape(shape)
        return out.to(x.dtype)

    def _track(self, mean, variance):
        self.num_batches_tracked.add_(1)
        factor = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(variance.to(self.running_var.dtype), factor)
