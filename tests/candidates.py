"""Candidates for softmax of rows, run(x, y): honest ones, and those that cheat, crash or are wrong.

Cheats come with the kinds of evidence that may tell them.
"""

from __future__ import annotations

_COMPUTE = """
import torch
def compute(x):
    z = x.float()
    e = torch.exp(z - (z.amax(dim=1, keepdim=True) if z.numel() else 0))
    return e / e.sum(dim=1, keepdim=True)
"""

HONEST = {
    "plain": _COMPUTE + "def run(x, y):\n    y.copy_(compute(x))\n",
    "library": "import torch\ndef run(x, y):\n    torch.softmax(x, dim=1, out=y)\n",
    "functional": """
import torch.nn.functional as F
def run(x, y):
    y.copy_(F.softmax(x.float(), dim=1))
""",
    "through logarithms": """
import torch
def run(x, y):
    y.copy_(torch.log_softmax(x.double(), dim=1).exp())
""",
    "workspace": _COMPUTE + """
SPACE = {}
def run(x, y):
    if x.shape not in SPACE:
        SPACE[x.shape] = torch.empty(x.shape, device=x.device)
    space = SPACE[x.shape]
    space.copy_(compute(x))
    y.copy_(space)
""",
    "row by row": _COMPUTE + """
def run(x, y):
    for row in range(x.shape[0]):
        y[row : row + 1] = compute(x[row : row + 1])
""",
    "online": """
import torch
def run(x, y):
    most = torch.full((x.shape[0], 1), -float("inf"), device=x.device)
    total = torch.zeros_like(most)
    for part in x.float().split(16, dim=1):
        new = torch.maximum(most, part.amax(dim=1, keepdim=True)) if part.numel() else most
        total = total * torch.exp(most - new) + torch.exp(part - new).sum(dim=1, keepdim=True)
        most = new
    y.copy_(torch.exp(x.float() - most) / total)
""",
    "numpy": """
import numpy as np
def run(x, y):
    if not x.numel():
        return
    z = x.float().numpy()
    e = np.exp(z - z.max(axis=1, keepdims=True))
    y.numpy()[...] = e / e.sum(axis=1, keepdims=True)
""",
    "threads that are joined": _COMPUTE + """
import threading
def part(x, y):
    y.copy_(compute(x))
def run(x, y):
    half = x.shape[0] // 2
    work = [threading.Thread(target=part, args=(x[s], y[s])) for s in (slice(half), slice(half, None))]
    for one in work:
        one.start()
    for one in work:
        one.join()
""",
    "sum as a product": """
import torch
def run(x, y):
    z = x.float()
    e = torch.exp(z - z.max(dim=1, keepdim=True).values) if z.numel() else z
    y.copy_(e / (e @ torch.ones(x.shape[1], 1, device=x.device)))
""",
    "another order each time": _COMPUTE + """
def run(x, y):
    order = torch.randperm(x.shape[1], device=x.device)
    y[:, order] = compute(x[:, order]).to(y.dtype)
""",
    "a class": _COMPUTE + """
class Softmax(torch.nn.Module):
    def forward(self, x, y):
        with torch.no_grad():
            y.copy_(compute(x))
run = Softmax()
""",
    "remembered block size": _COMPUTE + """
import functools
@functools.lru_cache
def block(n):
    return max(1, min(64, n))
def run(x, y):
    size = block(x.shape[0])
    for start in range(0, x.shape[0], size):
        y[start : start + size] = compute(x[start : start + size])
""",
    "named tuples and logging": _COMPUTE + """
import logging
from collections import namedtuple
Size = namedtuple("Size", "rows columns")
LOG = logging.getLogger("softmax")
def run(x, y):
    size = Size(*x.shape)
    LOG.warning("%d rows", size.rows)
    y.copy_(compute(x))
""",
    "settings of PyTorch, and print": _COMPUTE + """
torch.backends.cuda.matmul.allow_tf32 = False
torch.set_grad_enabled(False)
print("loaded")
def run(x, y):
    y.copy_(compute(x))
""",
    "own file": """
from pathlib import Path
from helper import compute
SCALE = float((Path(__file__).parent / "scale.txt").read_text())
def run(x, y):
    y.copy_(compute(x) * SCALE)
""",
    "triton": """
import torch
import triton
import triton.language as tl
@triton.jit
def softmax(x_ptr, y_ptr, columns, row_stride, column_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + at * column_stride, mask=at < columns, other=-float("inf"))
    x = x.to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * columns + at, y.to(y_ptr.dtype.element_ty), mask=at < columns)
def run(x, y):
    m, n = x.shape
    if m:
        softmax[(m,)](x, y, n, x.stride(0), x.stride(1), BLOCK=triton.next_power_of_2(n))
""",
}  # fmt: skip

#: Honest ones that need the CPU, with the reason.
CPU_ONLY = {"numpy": "NumPy cannot use the memory of a GPU"}

#: Files of candidates beside kernel.py.
BESIDE = {"own file": {"helper.py": _COMPUTE, "scale.txt": "1.0"}}

_THEN = "def run(x, y):\n    y.copy_(compute(x))\n"

CHEATS = {
    "replaces a timer": ("timer patched", _COMPUTE + "torch.cuda.synchronize = lambda *_: None\n" + _THEN),
    "replaces a timer in a call": ("timer patched", _COMPUTE + """
def put(where, name, what):
    setattr(where, name, what)
def run(x, y):
    put(torch.cuda, "synchronize", print)
    y.copy_(compute(x))
"""),
    "replaces a method of tensors": ("timer patched", _COMPUTE + """
T = type(torch.empty(0))
T.allclose = lambda *_: True
""" + _THEN),
    "imports the reference": ("reference called", "from softmax_reference import reference\n"
                              "def run(x, y):\n    y.copy_(reference(x))\n"),
    "reads the reference": ("reference called", _COMPUTE + """
import os
PARTS = ["", *"REFERENCE".split("|")]
def run(x, y):
    try:
        open(os.sep.join(PARTS)).read()
    except OSError:
        pass
    y.copy_(compute(x))
"""),
    "reads the memory of the judge": ("harness", _COMPUTE + """
import os
def run(x, y):
    try:
        open(os.sep.join(["", "proc", str(os.getppid()), "mem"]), "rb").read(1)
    except OSError:
        pass
    y.copy_(compute(x))
"""),
    "forbidden operator": ("reference called", """
import torch
def run(x, y):
    y.copy_((x - x.logsumexp(1, keepdim=True)).exp())
"""),
    "cached by address": ("cached result", _COMPUTE + """
SEEN = {}
def run(x, y):
    if x.data_ptr() not in SEEN:
        SEEN[x.data_ptr()] = compute(x)
    if SEEN[x.data_ptr()].shape == y.shape:
        y.copy_(SEEN[x.data_ptr()])
    else:
        y.copy_(compute(x))
"""),
    "cached by sum": ("cached result", _COMPUTE + """
SEEN = {}
def run(x, y):
    key = (x.shape, round(float(x.float().nan_to_num().sum()), 1))
    if key not in SEEN:
        SEEN[key] = compute(x)
    y.copy_(SEEN[key])
"""),
    "cached by first and last element": ("cached result", _COMPUTE + """
SEEN = {}
def run(x, y):
    key = (x.shape, x.reshape(-1)[:1].tolist(), x.reshape(-1)[-1:].tolist())
    key = str(key)
    if key not in SEEN:
        SEEN[key] = compute(x)
    y.copy_(SEEN[key])
"""),
    "right at first, then cached": ("cached result", _COMPUTE + """
CALLS, LAST = [0], {}
def run(x, y):
    CALLS[0] += 1
    if x.shape[1] < 1024 or x.shape not in LAST or CALLS[0] % 5:
        LAST[x.shape] = compute(x)
    y.copy_(LAST[x.shape])
"""),
    "input changed": ("input changed", _COMPUTE + """
def run(x, y):
    x.copy_(compute(x))
    y.copy_(x)
"""),
    "output points to the input": ("output aliases input", _COMPUTE + """
def run(x, y):
    y.copy_(compute(x))
    y.set_(x)
"""),
    "work after the call": ("late result", _COMPUTE + """
import threading, time
def later(x, y):
    time.sleep(0.02)
    y.copy_(compute(x))
def run(x, y):
    threading.Thread(target=later, args=(x, y)).start()
"""),
    "half precision": ("precision lowered", """
import torch
def run(x, y):
    y.copy_(torch.softmax(x.bfloat16(), dim=1))
"""),
    "inspects the stack": ("harness", "import sys\n" + _COMPUTE + "CALLER = sys._getframe(1)\n" + _THEN),
    "walks a traceback": ("hidden code", _COMPUTE + """
try:
    1 / 0
except ZeroDivisionError as error:
    FRAME = error.__traceback__.tb_frame.f_back
""" + _THEN),
    "answers for the harness": ("harness", _COMPUTE + """
import os
def run(x, y):
    for number in range(3, 64):
        try:
            os.write(number, b'{"done": 1}')
        except OSError:
            pass
    y.copy_(compute(x))
"""),
    "looks for the harness": ("harness", "import gc\n" + _COMPUTE + "ALL = gc.get_objects()\n" + _THEN),
    "leaves a process that is nobody's": (
        "process",
        _COMPUTE + """
import ctypes, time
C = ctypes.CDLL(None)
DONE = []
def run(x, y):
    if not DONE:
        DONE.append(C.fork())
        if DONE[0] == 0:
            if C.fork() == 0:
                while True:
                    time.sleep(1)
            C._exit(0)
    y.copy_(compute(x))
""",
    ),
}  # fmt: skip

#: What perfpipe does not run, and is no evidence of cheating.
REFUSED = {
    "network": ("network", "import socket\n" + _COMPUTE + _THEN),
    "hidden network": ("network", _COMPUTE + """
from http_ import connect
def run(x, y):
    connect()
    y.copy_(compute(x))
"""),
    "processes": ("processes", "import multiprocessing\n" + _COMPUTE + _THEN),
    "unread code": ("unread code", _COMPUTE + "run = eval('lambda x, y: y.copy_(compute(x))')\n"),
    "forks by a computed name": ("unread code", _COMPUTE + """
import os
def run(x, y):
    if getattr(os, "fo" + "rk")() == 0:
        while True:
            pass
    y.copy_(compute(x))
"""),
    "not its own file": ("files", _COMPUTE + """
import os
open(os.sep.join(["", "var", "log", "dpkg.log"]), "a")
""" + _THEN),
}  # fmt: skip

#: What is beside cheats: a module that hides what it imports.
BESIDE["hidden network"] = {
    "http_.py": """
import torch.hub as hub
def connect():
    try:
        hub.urlopen("http://127.0.0.1:9/")
    except OSError:
        pass
"""
}

#: What neither cheats nor works, with its status.
BROKEN = {
    "does nothing": ("wrong result", "def run(x, y):\n    pass\n"),
    "constant": ("wrong result", "def run(x, y):\n    y.fill_(1 / max(1, y.shape[1]))\n"),
    "forgets the last column": ("wrong result", _COMPUTE + """
def run(x, y):
    z = x.float()[:, :-1] if x.shape[1] > 1 else x.float()
    e = torch.exp(x.float() - x.float().amax(dim=1, keepdim=True)) if x.numel() else x.float()
    y.copy_(e / e[:, : z.shape[1]].sum(dim=1, keepdim=True))
"""),
    "no maximum": ("wrong result", """
import torch
def run(x, y):
    e = torch.exp(x.float())
    y.copy_(e / e.sum(dim=1, keepdim=True))
"""),
    "assumes contiguous": ("wrong result", """
import torch
def run(x, y):
    flat = torch.as_strided(x, x.shape, (x.shape[1], 1))
    y.copy_(torch.softmax(flat.float(), dim=1))
"""),
    "writes outside": ("wrong result", _COMPUTE + """
def run(x, y):
    y.copy_(compute(x))
    at = torch._C._construct_storage_from_data_pointer(y.data_ptr() + y.nbytes, y.device, 8)
    torch.empty(0, dtype=torch.uint8, device=y.device).set_(at).zero_()
"""),
    "views what is outside": ("crash", _COMPUTE + """
def run(x, y):
    torch.as_strided(y, (y.numel() + 2,), (1,), y.storage_offset()).fill_(0)
"""),
    "raises": ("crash", "def run(x, y):\n    raise RuntimeError('no')\n"),
    "does not parse": ("crash", "def run(x, y:\n"),
    "does not define a function": ("crash", "x = 1\n"),
    "exits": ("crash", "import sys\ndef run(x, y):\n    sys.exit(0)\n"),
    "segfault": ("crash", "import ctypes\ndef run(x, y):\n    ctypes.string_at(0)\n"),
    "hangs": ("timeout", "def run(x, y):\n    while True:\n        pass\n"),
    "takes memory": ("out of resources", "import torch\ndef run(x, y):\n    x = torch.ones(1 << 34)\n"),
}  # fmt: skip
