"""Fashion-MNIST as tensors, for the examples with PyTorch."""

import gzip
import sys

import torch


def load(folder, which):
    """which: "train" or "t10k". The images, a row of 784 pixels each, and their labels, as uint8."""
    def items(name, header):
        try:
            with gzip.open(f"{folder}/{which}-{name}-ubyte.gz") as file:
                return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)
        except OSError as error:
            sys.exit(f"{error}: install Debian's dataset-fashion-mnist, or name its folder with --data")
    return items("images-idx3", 16).reshape(-1, 784), items("labels-idx1", 8)
