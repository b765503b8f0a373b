"""Attacks on the judge, run(x, y), that gain nothing.

They compute the right result twelve times in each call (`slow`), and must not look faster than that.
"""

from __future__ import annotations

from exploits import _C, _HARNESS, _SLOWLY, SLOW

HARMLESS = {
    "replaces what watches it, and the timers": SLOW + _HARNESS + """
import time
def put(where, name):
    setattr(where, name, lambda *_, **__: 0)
def take(own):
    for name in ("perf_counter", "perf_counter_ns", "monotonic", "time"):
        put(time, name)
    for name in ("equal", "allclose", "isclose"):
        put(torch, name)
    own._call_under = lambda torch, call: (call(), [])
def run(x, y):
    taken()
    y.copy_(slow(x))
""",
    "sets the clock": SLOW + _C + """
C.clock_settime(0, (ctypes.c_long * 2)(1, 0))
C.settimeofday((ctypes.c_long * 2)(1, 0), None)
""" + _SLOWLY,
    "patches the code that reads the clock": SLOW + _C + """
CODE = {"x86_64": b"\\x31\\xc0\\xc3", "aarch64": b"\\x00\\x00\\x80\\x52\\xc0\\x03\\x5f\\xd6"}
at = ctypes.cast(C.clock_gettime, ctypes.c_void_p).value
if C.mprotect(ctypes.c_void_p(at & ~4095), 8192, 7) == 0:
    ctypes.memmove(at, CODE[os.uname().machine], len(CODE[os.uname().machine]))
""" + _SLOWLY,
    "writes to its memory": SLOW + """
import os
try:
    os.open(os.sep.join(["", "proc", "self", "mem"]), os.O_RDWR)
except OSError:
    pass
""" + _SLOWLY,
    "a library that programs load first": SLOW + """
import os, subprocess
os.environ["LD_PRELOAD"] = os.path.abspath("clock.so")
subprocess.run(["true"], stderr=subprocess.DEVNULL)
""" + _SLOWLY,
    "finds modules first": SLOW + """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        return None
sys.meta_path.insert(0, Finder())
sys.path_hooks.insert(0, lambda path: (_ for _ in ()).throw(ImportError()))
""" + _SLOWLY,
    "prints a verdict": SLOW + """
print('{"done": 1, "status": "correct", "speedup": 100.0}')
print("candidate: correct: 100 x, faster")
""" + _SLOWLY,
    "writes to every descriptor that is not the harness's": SLOW + """
import os
for number in (0, *range(64, 256)):
    try:
        os.write(number, b"x")
    except OSError:
        pass
""" + _SLOWLY,
    "ends the judge": SLOW + _C + """
for number in (9, 15, 19):
    C.kill(os.getppid(), number)
    C.kill(-1, 0)
""" + _SLOWLY,
    "slows its neighbours": SLOW + _C + """
MASK = (ctypes.c_uint64 * 16)(1)
for other in range(os.getpid() - 8, os.getpid() + 8):
    if other != os.getpid():
        C.sched_setscheduler(other, 5, (ctypes.c_int * 1)(0))
        C.sched_setaffinity(other, 128, MASK)
        C.setpriority(0, other, 19)
        C.prlimit(other, 0, MASK, None)
C.setpriority(2, 0, 19)
""" + _SLOWLY,
    "threads that never end": SLOW + """
import threading, time
def spin():
    while True:
        time.sleep(0.001)
for _ in range(2):
    threading.Thread(target=spin, daemon=True).start()
""" + _SLOWLY,
    "a namespace of its own": SLOW + _C + """
C.unshare(0x10000000 | 0x20000000 | 0x00020000)
C.syscall({"x86_64": 435, "aarch64": 435}[os.uname().machine], None, 0)
C.chroot(b"/")
C.ptrace(0, 0, None, None)
""" + _SLOWLY,
    "sockets by system calls": SLOW + _C + """
for family in (1, 2, 10, 16, 17):
    assert C.syscall({"x86_64": 41, "aarch64": 198}[os.uname().machine], family, 1, 0) == -1
assert C.syscall(425, 8, (ctypes.c_uint32 * 32)()) == -1
""" + _SLOWLY,
    "the interpreter through its C interface": SLOW + """
import ctypes
P = ctypes.PyDLL(None)
P.PyEval_GetBuiltins.restype = ctypes.py_object
P.PyEval_GetBuiltins()["max"] is max
""" + _SLOWLY,
    "a forbidden operator on a thread that nobody watches": SLOW + """
import threading
def forbidden(x):
    x.float().logsumexp(1)
def run(x, y):
    work = threading.Thread(target=forbidden, args=(x,))
    work.start()
    work.join()
    y.copy_(slow(x))
""",
    "other defaults of PyTorch": SLOW + """
torch.set_default_dtype(torch.float16)
torch.set_flush_denormal(True)
torch.set_num_threads(2)
torch.manual_seed(0)
""" + _SLOWLY,
    "a mode that sees every operator": SLOW + """
from torch.utils._python_dispatch import TorchDispatchMode
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, given=(), named=None):
        return function(*given, **(named or {}))
Mode().__enter__()
""" + _SLOWLY,
    "classes that claim to be others": SLOW + """
class Meta(type):
    def __instancecheck__(cls, other):
        return True
    def __init_subclass__(cls, **given):
        cls.time = lambda: 0
class Tensor(metaclass=Meta):
    pass
""" + _SLOWLY,
    "files named as modules": SLOW + "import numpy, sitecustomize_, json\n" + _SLOWLY,
    "stops itself": SLOW + _C + """
import threading, time
def wake():
    while True:
        time.sleep(0.01)
        C.kill(os.getpid(), 18)
threading.Thread(target=wake, daemon=True).start()
""" + _SLOWLY,
}  # fmt: skip
