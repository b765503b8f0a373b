"""Runs in the process of a candidate: loads it, and calls it when the judge says so.

A tensor of a call has a storage of its own.  In a batch, a word of an input is missing until the
call begins, so nothing that is computed earlier is right.

The judge does not trust this process: results are read from the shared block, and the clock is the
judge's.  Reports from here (exceptions, replaced functions, work that its stream does not wait for)
can only count against a candidate.

Packets are JSON.  Asked: {"do": "load" | "call" | "prepare" | "go", ...}; answered: {"done": ...,
"error": ...}; unasked: {"audit": {...}} for what the standard library's audit hooks saw.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import mmap
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from perfpipe.pipelines.evaluate import watching
from perfpipe.pipelines.evaluate.confine import confine, confine_driver, limit_memory
from perfpipe.pipelines.evaluate.packets import PACKET, WORD

#: Delay of late inputs, cycles of the GPU's clock: some milliseconds.
_PACE_CYCLES = 5_000_000

#: The package of this file; candidates cannot import its modules.
_HARNESS = "perfpipe.pipelines"

#: What compilers and the C library say when they meet a limit.
_LIMITS = {
    "File size limit exceeded": "limits.file_mb",
    "File too large": "limits.file_mb",
    "signal 25": "limits.file_mb",
    "SIGXFSZ": "limits.file_mb",
    "virtual memory exhausted": "limits.memory_mb",
    "Cannot allocate memory": "limits.memory_mb",
    "out of memory allocating": "limits.memory_mb",
    "CPU time limit exceeded": "limits.seconds",
}

#: Characters of an error that are passed on.
_ERROR = 2000


def run(asked: dict[str, Any], line: int, output: int, block: int) -> NoReturn:
    """Serve a candidate in a forked process, and exit."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        for stream in (sys.stdout, sys.stderr):
            # Its output is available even if it is killed.
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        _close_but(line, block)
        settle(asked["directory"])
        on_gpu = asked["device"] != "cpu"
        if on_gpu and asked["driver"]:
            confine_driver(asked)
        inside = Inside(asked, socket.socket(fileno=line), block)
        refused = confine(asked)
        if on_gpu:
            refused["driver threads"] = asked["driver"] and refused["files"]
        inside.limit()
        _serve(inside, refused)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _close_but(*kept: int) -> None:
    """Close what the process inherited from the fork server, except some."""
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def settle(directory: str) -> None:
    """Make a candidate's directory the current one, and keep caches and other files next to it."""
    os.chdir(directory)
    beside = os.path.dirname(directory)  # noqa: PTH120
    for name in ("HOME", "TMPDIR", "TRITON_HOME"):
        os.environ[name] = beside
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"):
        os.environ[name] = f"{beside}/{name.lower()}"
    tempfile.tempdir = None


def _serve(inside: Inside, refused: dict[str, bool]) -> None:
    inside.say({"done": "confined", "refused": refused})
    while asked := inside.hear():
        answer: dict[str, Any] = {"done": asked["id"]}
        try:
            answer |= getattr(inside, f"do_{asked['do']}")(asked)
        except BaseException as error:
            answer["error"] = _told(error)
        inside.say(answer)


class Inside:
    """A candidate with the shared block and the connection to the judge."""

    def __init__(self, asked: dict[str, Any], line: socket.socket, block: int) -> None:
        import torch

        self._torch, self._asked, self._line = torch, asked, line
        self._style = asked["style"]
        torch.set_num_threads(asked["threads"])
        if self._on_gpu:
            torch.cuda.set_device(asked["device"])
        self._block = self.block(block)
        self._base: int = self._block.data_ptr()
        self._write = self._writer()
        self._function: Callable[..., Any] | None = None
        self._calls: list[tuple[list[Any], list[Any]]] = []
        # Held before a candidate can replace them.
        self._synchronize = torch._C._cuda_synchronize if self._on_gpu else _nothing
        self._stream = torch.cuda.current_stream() if self._on_gpu else None
        if self._on_gpu:
            self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            self._tick = torch.zeros(1, device=asked["device"])
            self._tick.add_(1)
        self._known = watching.known(torch)
        self._dumps, self._loads, self._call_under = json.dumps, json.loads, watching.operators_of

    @property
    def _on_gpu(self) -> bool:
        return bool(self._asked["device"] != "cpu")

    def block(self, file: int) -> Any:
        """Return the memory that the judge shares, as bytes; `file` is its descriptor."""
        torch, asked = self._torch, self._asked
        if not self._on_gpu:
            held = mmap.mmap(file, asked["bytes"])
            found = torch.frombuffer(held, dtype=torch.uint8)
        else:
            parts = [bytes.fromhex(p) if isinstance(p, str) else p for p in asked["shared"]]
            storage = torch.UntypedStorage._new_shared_cuda(*parts)
            found = torch.tensor([], dtype=torch.uint8, device=asked["device"])
            found.set_(storage, 0, (asked["bytes"],), (1,))
        os.close(file)
        return found

    def _writer(self) -> Callable[[int, int], Any]:
        """Return a function that writes a word at an offset of the block, before a call.

        On a GPU it writes in the order of the stream, without a kernel where the driver can.
        """
        if not self._on_gpu:
            words = (ctypes.c_uint32 * (self._asked["bytes"] // WORD)).from_address(self._base)

            def write(offset: int, value: int) -> None:
                words[offset // WORD] = value

            return write
        stream, base = self._torch.cuda.current_stream().cuda_stream, self._base
        whole = self._block[: self._asked["bytes"] // WORD * WORD].view(self._torch.int32)
        with contextlib.suppress(OSError, AttributeError):
            driver = ctypes.CDLL("libcuda.so.1").cuStreamWriteValue32_v2
            driver.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
            if driver(stream, base, int(whole[0]) & 0xFFFFFFFF, 0) == 0:
                return lambda offset, value: driver(stream, base + offset, value, 0)
        return lambda offset, value: whole[offset // WORD].fill_(
            value - (1 << 32) if value >> 31 else value
        )

    def limit(self) -> None:
        """Limit the memory of the host; a GPU's driver reserves addresses without end."""
        if not self._on_gpu:
            limit_memory(self._asked["limits"]["memory_bytes"])

    def say(self, packet: dict[str, Any]) -> None:
        """Send a packet to the judge."""
        self._line.send(self._dumps(packet).encode())

    def hear(self) -> dict[str, Any] | None:
        """Return the judge's request; None when the judge has gone."""
        packet = self._line.recv(PACKET)
        return self._loads(packet) if packet else None

    def do_load(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Import the candidate's module."""
        directory, module = self._asked["directory"], self._asked["module"]
        sys.path.insert(0, directory)
        watching.audit(self._asked, self.say)
        for name in [*sys.modules]:
            if name == _HARNESS or name.startswith(f"{_HARNESS}."):
                del sys.modules[name]
        vars(sys.modules["perfpipe"]).pop("pipelines", None)
        main = sys.modules["__main__"]
        main.__dict__.clear()
        spec = importlib.util.spec_from_file_location("candidate", f"{directory}/{module}")
        if spec is None or spec.loader is None:
            raise ImportError(f"{module} is not a Python module")
        made = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = made
        if self._asked["init"] is not None:
            self._torch.manual_seed(self._asked["seed"])
        spec.loader.exec_module(made)
        entry = getattr(made, self._asked["entry"], None)
        if not callable(entry):
            raise AttributeError(f"{module} does not define a function {self._asked['entry']}")
        if self._asked["init"] is not None:
            self._torch.manual_seed(self._asked["seed"])
            entry = entry(*self._asked["init"]).to(self._asked["device"])
        self._function = entry
        return {"replaced": self._known.replaced()}

    def do_call(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Call the candidate once, and check its side effects."""
        ((inputs, outputs),) = self._tensors([asked])
        places = [tensor.data_ptr() for tensor in outputs]
        told: dict[str, Any] = {}
        if asked["paced"] and self._on_gpu:
            self._pace(inputs)
        if asked["watch"]:
            # What is asked of PyTorch is seen below it.
            found, told["operators"] = self._call_under(
                self._torch, lambda: self._one(inputs, outputs)
            )
        else:
            found = self._one(inputs, outputs)
        told |= found
        if self._on_gpu:
            told["unordered"] = self._unordered(outputs)
        self._synchronize()
        if [tensor.data_ptr() for tensor in outputs] != places:
            told["aliases"] = "the output tensor was redirected to other memory"
        return told | {"replaced": self._known.replaced()}

    def _pace(self, inputs: list[Any]) -> None:
        """Delay the inputs on the stream of the call: other streams must wait for it."""
        tensors = [one for one in inputs if isinstance(one, self._torch.Tensor)]
        held = [one.clone() for one in tensors]
        for one in tensors:
            one.zero_()
        self._synchronize()
        with self._torch.cuda.stream(self._stream):
            self._torch.cuda._sleep(_PACE_CYCLES)
            for one, value in zip(tensors, held, strict=True):
                one.copy_(value)

    def do_prepare(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Make the tensors of the calls to come: views of the block, which are filled later."""
        self._calls = self._tensors(asked["calls"])
        self._synchronize()
        return {}

    def do_go(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Call the candidate for prepared calls from `first` on, and wait for all its work.

        `late` has one list for each: offset and value of words of its inputs.
        """
        one, write, first = self.quick, self._write, asked["first"]
        calls = [*zip(self._calls[first:], asked["late"], strict=False)]
        if not self._on_gpu:
            for (inputs, outputs), late in calls:
                for offset, value in late:
                    write(offset, value)
                one(inputs, outputs)
            return {}
        start, end = self._events
        start.record(self._stream)
        for (inputs, outputs), late in calls:
            for offset, value in late:
                write(offset, value)
            one(inputs, outputs)
        if self._function is None:
            # Without calls as well, the GPU changes over to this process and back.
            self._tick.add_(1)
        end.record(self._stream)
        self._synchronize()
        return {"event_ms": start.elapsed_time(end)}

    def do_look(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the functions replaced so far."""
        return {"replaced": self._known.replaced()}

    def _tensors(self, calls: Sequence[dict[str, Any]]) -> list[tuple[list[Any], list[Any]]]:
        return [
            ([*map(self._view, call["inputs"])], [*map(self._view, call["outputs"])])
            for call in calls
        ]

    def _view(self, view: dict[str, Any]) -> Any:
        if "value" in view:
            return view["value"]
        torch, shape, stride = self._torch, view["shape"], view["stride"]
        dtype = getattr(torch, view["dtype"])
        empty = torch.empty(0, dtype=dtype, device=self._block.device)
        if 0 in shape:
            return empty.as_strided(shape, stride)
        size = 1 + sum((extent - 1) * by for extent, by in zip(shape, stride, strict=True))
        # Of its own: a storage of the whole block would hand over the other calls.
        storage = torch._C._construct_storage_from_data_pointer(
            self._base + view["offset"], self._block.device, size * dtype.itemsize
        )
        return empty.set_(storage, 0, shape, stride)

    def _one(self, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
        """Call the candidate, and report defects of its return value."""
        assert self._function is not None  # noqa: S101
        torch = self._torch
        if self._style == "destination":
            self._function(*inputs, *outputs)
            return {}
        returned = self._function(*inputs)
        returned = returned if isinstance(returned, (tuple, list)) else (returned,)
        told: dict[str, Any] = {"returned": []}
        for found, output in zip(returned, outputs, strict=True):
            if not isinstance(found, torch.Tensor):
                raise TypeError(f"returned a {type(found).__name__} instead of a tensor")
            if type(found) not in (torch.Tensor, torch.nn.Parameter):
                told["subclass"] = type(found).__name__
            shape, dtype = [*found.shape], str(found.dtype).removeprefix("torch.")
            told["returned"].append({"shape": shape, "dtype": dtype})
            if 0 <= found.untyped_storage().data_ptr() - self._base < self._asked["bytes"]:
                told["aliases"] = "the output returned shares memory with an input"
            if shape == [*output.shape] and found.dtype == output.dtype:
                output.copy_(found)
        return told

    def quick(self, inputs: list[Any], outputs: list[Any]) -> None:
        if self._style == "destination":
            self._function(*inputs, *outputs)  # type: ignore[misc]
            return
        returned = self._function(*inputs)  # type: ignore[misc]
        several = isinstance(returned, (tuple, list))
        for found, output in zip(returned if several else (returned,), outputs, strict=True):
            output.copy_(found)

    def _unordered(self, outputs: list[Any]) -> bool:
        """Return whether work on the stream of the call would not see the final output."""
        with self._torch.cuda.stream(self._stream):
            copies = [output.clone() for output in outputs]
        self._synchronize()
        raw = self._torch.uint8
        return not all(
            bool((copy.reshape(-1).view(raw) == output.reshape(-1).view(raw)).all())
            for copy, output in zip(copies, outputs, strict=True)
            if output.numel()
        )


def _nothing() -> None:
    """Do nothing: a CPU has no queue."""


def _told(error: BaseException) -> dict[str, Any]:
    """Return an error as data."""
    text = "".join(traceback.format_exception(error))
    kind = type(error).__name__
    short = isinstance(error, MemoryError) or kind in ("OutOfMemoryError", "OutOfResources")
    with contextlib.suppress(Exception):
        short = short or "can't allocate memory" in str(error)
    limit = next((limit for said, limit in _LIMITS.items() if said in text), None)
    said = "".join(traceback.format_exception_only(error))
    return {
        "type": kind, "text": text[-_ERROR:], "said": said[:_ERROR], "out_of_resources": short,
        "limit": limit,
    }  # fmt: skip
