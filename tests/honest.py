"""Honest candidates for softmax of rows, run(x, y), one of a kind: their files."""

from __future__ import annotations

from candidates import HONEST

#: Needs g++ and ninja, or g++ alone.
_EXTENSION = """
import os
import torch
from torch.utils.cpp_extension import load_inline
os.environ["MAX_JOBS"] = "1"
SOURCE = r'''
#include <torch/library.h>
#include <ATen/ATen.h>
void run(const at::Tensor &x, at::Tensor y) { y.copy_(at::softmax(x.to(at::kFloat), 1)); }
TORCH_LIBRARY(softmax_inline, library) { library.def("run", run); }
'''
load_inline(
    "softmax_inline", SOURCE, is_python_module=False, no_implicit_headers=True,
    extra_cflags=["-O0"],
)
def run(x, y):
    torch.ops.softmax_inline.run(x, y)
"""

_C = """
#include <math.h>
void softmax(const float *x, float *y, long m, long n) {
    for (long i = 0; i < m; ++i) {
        double most = -INFINITY, sum = 0;
        for (long j = 0; j < n; ++j) most = fmax(most, x[i * n + j]);
        for (long j = 0; j < n; ++j) sum += exp(x[i * n + j] - most);
        for (long j = 0; j < n; ++j) y[i * n + j] = exp(x[i * n + j] - most) / sum;
    }
}
"""

KINDS = {
    "a call of the library": {"kernel.py": HONEST["library"]},
    "a Triton kernel": {"kernel.py": HONEST["triton"]},
    "NumPy on the memory of tensors": {"kernel.py": HONEST["numpy"]},
    "a workspace that is kept": {"kernel.py": HONEST["workspace"]},
    "compiled by PyTorch": {"kernel.py": """
import torch
import torch._inductor.config
# Workers of the compiler would run concurrently with the calls.
assert torch._inductor.config.compile_threads == 1
@torch.compile(dynamic=True)
def softmax(x):
    return torch.softmax(x.float(), dim=1)
def run(x, y):
    y.copy_(softmax(x))
"""},
    "an extension in C++": {"kernel.py": _EXTENSION},
    "its own C, compiled as it is loaded": {"softmax.c": _C, "kernel.py": """
import ctypes
import subprocess
from pathlib import Path
HERE = Path(__file__).parent
subprocess.run(
    ["gcc", "-O2", "-shared", "-fPIC", str(HERE / "softmax.c"), "-o", str(HERE / "softmax.so"), "-lm"],
    check=True,
)
C = ctypes.CDLL(str(HERE / "softmax.so"))
def run(x, y):
    z = x.float().contiguous()
    w = y if y.dtype == z.dtype else z.new_empty(z.shape)
    at = (ctypes.c_void_p(one.data_ptr()) for one in (z, w))
    C.softmax(*at, *(ctypes.c_long(extent) for extent in x.shape))
    if w is not y:
        y.copy_(w)
"""},
    "other shapes of the same": {"kernel.py": """
import torch
from math import gcd
def run(x, y):
    m, n = x.shape
    part = gcd(n, 64)
    z = x.float().reshape(m, n // part, part).permute(1, 0, 2)
    most = z.amax(dim=(0, 2), keepdim=True)
    e = torch.exp(z - most)
    y.copy_((e / torch.einsum("amb->m", e)[None, :, None]).permute(1, 0, 2).reshape(m, n))
"""},
    "in place on the output": {"kernel.py": """
import torch
def run(x, y):
    if y.dtype != torch.float32:
        return y.copy_(torch.softmax(x, dim=1, dtype=torch.float32))
    torch.sub(x, x.amax(dim=1, keepdim=True), out=y)
    y.exp_().div_(y.sum(dim=1, keepdim=True))
"""},
    "looks at itself": {"kernel.py": """
import importlib
import inspect
import os
import sys
import torch
os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
os.environ.setdefault("TRITON_CACHE_DIR", "cache")
class Softmax:
    def __init__(self, **given):
        self.__dict__.update(given)
    def __call__(self, x, y):
        y.copy_(self.function(x.float(), dim=self.dim))
LIBRARY = importlib.import_module("torch.nn.functional")
PARAMETERS = inspect.signature(LIBRARY.softmax).parameters
run = Softmax(function=LIBRARY.softmax, dim=1)
HERE = sys.modules[__name__]
"""},
}  # fmt: skip

#: A problem of KernelBench; with another name of its class it is a candidate.
WEIGHTS = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x):
        return torch.relu(self.linear(x))
def get_inputs():
    return [torch.randn(16, 64)]
def get_init_inputs():
    return [64]
"""
