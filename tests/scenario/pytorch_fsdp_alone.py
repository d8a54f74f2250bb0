"""Folders of torch.distributed.checkpoint in one process, without dlaunch. usage: pytorch_fsdp_alone.py FOLDER OTHER
EXAMPLES: both hold the same, bit for bit; and the model of the first is good."""
import sys

import torch
import torch.distributed.checkpoint as checkpoint


def content(folder):
    found = {}
    for key, it in checkpoint.FileSystemReader(folder).read_metadata().state_dict_metadata.items():
        if hasattr(it, "size"):
            found[key] = torch.full(it.size, -1.0, dtype=it.properties.dtype)
    checkpoint.load(found, checkpoint_id=folder)
    return found


one, other = content(sys.argv[1]), content(sys.argv[2])
assert len(one) == 4 + 4 * 3 and one.keys() == other.keys(), one.keys()  # parameters, and Adam's three for each
for key, tensor in one.items():
    assert torch.equal(tensor, other[key]), f"{key} differs"
model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10))
weights = {"model": model.state_dict()}
checkpoint.load(weights, checkpoint_id=sys.argv[1])
model.load_state_dict(weights["model"])
sys.path.insert(0, sys.argv[3])
from fashion_mnist import load  # noqa: E402
pixels, labels = load("/usr/share/datasets/fashion-mnist", "t10k")
right = (model((pixels - 73.0) / 90.0).argmax(1) == labels).float().mean().item()
assert "dlaunch" not in sys.modules
print(f"the same, with accuracy {right:.3f}")
