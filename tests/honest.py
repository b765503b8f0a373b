"""Honest candidates for softmax of rows, run(x, y), one of a kind: their files."""

from __future__ import annotations

from candidates import HONEST

#: Needs g++ and ninja.
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

#: The kernel of those for a GPU: a block of threads per row.
_CUDA = """
#define THREADS 256
extern "C" __global__ void softmax(const float *x, float *y, int n) {
    __shared__ float part[THREADS];
    float *own = part + threadIdx.x, most, sum = 0;
    x += (long long)blockIdx.x * n;
    y += (long long)blockIdx.x * n;
    *own = x[0];
    for (int j = threadIdx.x; j < n; j += THREADS) *own = fmaxf(*own, x[j]);
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) *own = fmaxf(*own, own[half]);
    }
    __syncthreads();
    most = part[0];
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += THREADS) sum += expf(x[j] - most);
    *own = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) *own += own[half];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += THREADS) y[j] = expf(x[j] - most) / part[0];
}
"""

#: Launches it, for both compilers of CUDA.
_LAUNCH = """
extern "C" int launch(const float *x, float *y, long m, long n, cudaStream_t stream) {
    softmax<<<m, THREADS, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}
"""

_CUDA_EXTENSION = f"""
import os
import torch
from torch.utils.cpp_extension import load_inline
os.environ["MAX_JOBS"] = "2"
CUDA = r'''
#include <cuda_runtime.h>
{_CUDA}{_LAUNCH}
'''
SOURCE = r'''
#include <torch/library.h>
#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
extern "C" int launch(const float *x, float *y, long m, long n, cudaStream_t stream);
void run(const at::Tensor &x, at::Tensor y) {{
    at::Tensor z = x.to(at::kFloat).contiguous(), w = at::empty_like(z);
    auto stream = c10::cuda::getCurrentCUDAStream();
    TORCH_CHECK(launch(z.data_ptr<float>(), w.data_ptr<float>(), z.size(0), z.size(1), stream) == 0);
    y.copy_(w);
}}
TORCH_LIBRARY(softmax_cuda, library) {{ library.def("run", run); }}
'''
load_inline(
    "softmax_cuda", SOURCE, CUDA, is_python_module=False, no_implicit_headers=True,
    extra_cflags=["-O0"],
)
def run(x, y):
    torch.ops.softmax_cuda.run(x, y)
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
    "an extension in CUDA": {"kernel.py": _CUDA_EXTENSION},
    "its own CUDA, compiled as it is loaded": {"softmax.cu": _CUDA + _LAUNCH, "kernel.py": """
import ctypes
import subprocess
from pathlib import Path
import torch
from torch.utils.cpp_extension import CUDA_HOME
HERE = Path(__file__).parent
MAJOR, MINOR = torch.cuda.get_device_capability()
subprocess.run(
    [
        f"{CUDA_HOME}/bin/nvcc", f"-arch=sm_{MAJOR}{MINOR}", "-shared", "-Xcompiler", "-fPIC",
        str(HERE / "softmax.cu"), "-o", str(HERE / "softmax.so"),
    ],
    check=True,
)
LAUNCH = ctypes.CDLL(str(HERE / "softmax.so")).launch
LAUNCH.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p
def run(x, y):
    z = x.float().contiguous()
    w = y if y.dtype == z.dtype else torch.empty_like(z)
    assert LAUNCH(z.data_ptr(), w.data_ptr(), *x.shape, torch.cuda.current_stream().cuda_stream) == 0
    if w is not y:
        y.copy_(w)
"""},
    "a kernel of CuPy": {"kernel.py": f"""
import cupy
import torch
KERNEL = cupy.RawKernel(r'''{_CUDA}''', "softmax")
def run(x, y):
    m, n = x.shape
    z = x.float().contiguous()
    w = y if y.dtype == z.dtype else torch.empty_like(z)
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        KERNEL((m,), (256,), (cupy.asarray(z), cupy.asarray(w), cupy.int32(n)))
    if w is not y:
        y.copy_(w)
"""},
    "a CUDA graph": {"kernel.py": """
import torch
GRAPHS = {}
def compute(x, y):
    y.copy_(torch.softmax(x.float(), dim=1))
def captured(x, y):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        compute(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compute(x, y)
    return graph, x, y
def run(x, y):
    key = x.dtype, x.shape
    if key not in GRAPHS:
        GRAPHS[key] = captured(torch.zeros_like(x), torch.zeros_like(y))
    graph, own_x, own_y = GRAPHS[key]
    own_x.copy_(x)
    graph.replay()
    y.copy_(own_y)
"""},
}  # fmt: skip

#: Those that need the CPU, with the reason.
CPU_ONLY = {
    "NumPy on the memory of tensors": "NumPy cannot use the memory of a GPU",
    "its own C, compiled as it is loaded": "C on the CPU cannot use the memory of a GPU",
}

#: Those for GPUs, with the program or Python package that they need.
GPU_ONLY = {
    "an extension in CUDA": "nvcc",
    "its own CUDA, compiled as it is loaded": "nvcc",
    "a kernel of CuPy": "cupy",
    "a CUDA graph": "torch",
}

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
