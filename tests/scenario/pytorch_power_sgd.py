"""dlaunch.torch.PowerSGD beside PyTorch's own powerSGD_hook, as the reference: after each step both models have the same
weights, within rounding. And a step with an infinity or a NaN is over with that step."""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as reference
from torch.nn.parallel import DistributedDataParallel

import dlaunch.torch

START, STEPS = 3, 25
dist.init_process_group("dlring")


def trained(rank, error_feedback, ours):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Flatten(), torch.nn.Linear(256, 40), torch.nn.Tanh(),
                                torch.nn.Linear(40, 2)).double()
    # One bucket: with more of them PyTorch's hook may begin its sums in another order on each rank.
    net = DistributedDataParallel(model)
    options = {"matrix_approximation_rank": rank, "start_powerSGD_iter": START, "min_compression_rate": 1.5,
               "use_error_feedback": error_feedback}
    mine = dlaunch.torch.PowerSGD(model, **options)
    if ours:
        net.register_comm_hook(mine, dlaunch.torch.compressed)
    else:
        state = reference.PowerSGDState(None, **options)

        def hook(state, bucket):
            if state.iter == START and not state.q_memory_dict:  # both begin with the same Q
                low = [mine._matrices[parameter].q for parameter in bucket.parameters() if parameter in mine._matrices]
                columns = sum(parameter.shape[0] * mine._matrices[parameter].q.shape[1]
                              for parameter in bucket.parameters() if parameter in mine._matrices)
                state.p_memory_dict[0] = torch.zeros(columns, dtype=torch.float64)
                state.q_memory_dict[0] = torch.cat([q.flatten() for q in low]).double()
            return reference.powerSGD_hook(state, bucket)

        net.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.005, momentum=0.9)
    for step in range(STEPS):
        x = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(100 * step + dist.get_rank())).double()
        optimizer.zero_grad()
        (net(x) - x.sum((1, 2, 3)).unsqueeze(1)).square().mean().backward()
        optimizer.step()
        yield torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


for rank, error_feedback in ((1, True), (3, True), (2, False)):
    worst = 0.0
    for step, (a, b) in enumerate(zip(trained(rank, error_feedback, True), trained(rank, error_feedback, False))):
        worst = max(worst, float((a - b).abs().max()))
        assert worst < 1e-4, f"rank {rank}, error feedback {error_feedback}: {worst} apart after step {step}"
    print(f"rank {rank}: within {worst:.1e}", flush=True)

layer = torch.nn.Linear(30, 20)
net = DistributedDataParallel(layer)
hook = dlaunch.torch.PowerSGD(layer, matrix_approximation_rank=3, start_powerSGD_iter=0, min_compression_rate=1.1)
net.register_comm_hook(hook, dlaunch.torch.compressed)
for step, poison in enumerate((0, 0, float("inf"), 0, float("nan"), 3e38, 0, 0)):
    x = torch.randn(1, 30, generator=torch.Generator().manual_seed(100 * step + dist.get_rank()))
    if poison and dist.get_rank() == 1:
        x.fill_(poison)
    layer.zero_grad()
    (net(x).sum() * 4 if poison else net(x).square().sum()).backward()
    gradient = layer.weight.grad
    assert gradient.isnan().all() if poison else gradient.isfinite().all() and gradient.any(), (step, gradient)
    if poison:
        assert not hook.own["error.0"].any() and hook.common["q.0"].isfinite().all()
    for tensor in (gradient, hook.common["q.0"]):
        everywhere = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(everywhere, tensor)
        assert poison or all(torch.equal(one, tensor) for one in everywhere)
print("as PyTorch's hook")
dist.destroy_process_group()
