"""Prints the facts for a build against this Python's PyTorch, for Meson: one line each."""

import sysconfig

import torch
from torch.utils import cpp_extension

libraries = cpp_extension.library_paths()
print(";".join(cpp_extension.include_paths() + [sysconfig.get_paths()["include"]]))
print(";".join(libraries))
print(int(torch._C._GLIBCXX_USE_CXX11_ABI))
print(";".join(
    f'-DPYBIND11_{name}="{value}"'
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
    if (value := getattr(torch._C, f"_PYBIND11_{name}", None)) is not None))
print(".".join(torch.__version__.split(".")[:2]))
