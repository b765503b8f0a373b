"""Records what a PyTorch program computes, so that the results of two launches can be compared.

trying.py installs this file and calls its functions.  Recorded are the scalars on which the program
calls backward, samples of the model's outputs, norms of gradients and parameters, generated tokens,
and counts of the work done.  Each process writes results.PID.json into $PERFPIPE_INJECT_DIR.

No value is read while the program runs.  It is copied on the device at once, because the program
may overwrite it.  Full blocks of copies are brought to the host when an event says that they are
complete, without waiting.  No random number is drawn.  See sitecustomize.py for the contract of
this file.
"""

import functools
import json
import os
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

#: Numbers in a block, and the steps, calls or tokens that are recorded; later ones are counted.
BLOCK, MOST = 512, 1 << 14

#: Values that are sampled from an output, parameters and gradients that are in a norm, and values
#: of each parameter that are in the norm of an update.
SAMPLED, PARAMETERS, UPDATED = 16, 16, 4096

#: Time between looks at the blocks, ns, and between reports; see observe.py.
LOOK_NS, EVERY_NS, WRITING_SHARE = 100_000_000, 2_000_000_000, 1 / 200

#: Containers that are searched for an output, and how deeply.
_DEEPEST, _WIDEST = 3, 16


def _nothing(*args: "Any") -> None:
    """Do nothing."""


#: Sets what torch.compile does with the frames of this thread, and returns what it did before.
_set_eval_frame: "Callable[[Any], Any]" = _nothing

_clock = time.perf_counter_ns


class _Block:
    """Numbers on a device, and which values they are: keys, with the count of numbers."""

    def __init__(self, values: "Any") -> None:
        self.values, self.used = values, 0
        self.keys: "list[tuple[Any, int]]" = []
        self.streams: "dict[int, Any]" = {}  # CUDA streams that wrote it
        self.events: "list[Any]" = []  # behind the last write of each stream
        self.host: "Any" = None
        self.copied: "Any" = None  # event behind the copy to the host


class _Tape:
    """Copies of values, in the order in which they were recorded on each device."""

    def __init__(self, torch: "Any", take: "Callable[[Any, list[float]], None]") -> None:
        self._torch, self._take = torch, take
        self._filling: "dict[Any, _Block]" = {}
        self._sealed: "list[_Block]" = []
        self._free: "dict[Any, list[_Block]]" = {}
        self._side: "dict[Any, Any]" = {}

    def put(self, key: "Any", values: "Any") -> None:
        """Copy a tensor of at most BLOCK numbers; it may change afterwards."""
        device, count = values.device, values.numel()
        if device.type == "cuda" and self._torch.cuda.is_current_stream_capturing():
            return
        block = self._filling.get(device)
        if block is None or block.used + count > BLOCK:
            if block is not None:
                self._seal(device, block)
            block = self._filling[device] = self._empty(device)
        block.values[block.used : block.used + count].copy_(values.reshape(-1))
        block.used += count
        block.keys.append((key, count))
        if device.type == "cuda":
            stream = self._torch.cuda.current_stream(device)
            block.streams[stream.cuda_stream] = stream

    def _empty(self, device: "Any") -> _Block:
        """Return a block to fill."""
        if self._free.get(device):
            return _Block(self._free[device].pop().values)
        torch = self._torch
        dtype = torch.float32 if device.type == "mps" else torch.float64
        with torch.inference_mode(False):  # other code may not write into tensors of this mode
            return _Block(torch.empty(BLOCK, dtype=dtype, device=device))

    def _seal(self, device: "Any", block: _Block) -> None:
        """End a block; what it contains is read as soon as that takes no waiting."""
        del self._filling[device]
        self._sealed.append(block)
        for stream in block.streams.values():
            event = self._torch.cuda.Event()
            event.record(stream)
            block.events.append(event)

    def look(self, seal: bool = False) -> None:
        """Read the blocks that are complete; with `seal`, end those that are not full."""
        torch = self._torch
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return
        for device, block in list(self._filling.items()) if seal else ():
            self._seal(device, block)
        waiting = []
        for block in self._sealed:
            device = block.values.device
            if device.type == "cpu":
                self._read(block, block.values)
            elif device.type != "cuda":
                waiting.append(block)
            elif block.copied is not None and block.copied.query():
                self._read(block, block.host)
            else:
                if block.copied is None and all(event.query() for event in block.events):
                    self._bring(block)
                waiting.append(block)
        self._sealed = waiting

    def _bring(self, block: _Block) -> None:
        """Copy a block that the GPU has written to the host, beside the program's streams."""
        cuda, device = self._torch.cuda, block.values.device
        if device not in self._side:
            self._side[device] = cuda.Stream(device)
        host = self._torch.empty(BLOCK, dtype=block.values.dtype, device="cpu", pin_memory=True)
        with cuda.stream(self._side[device]):
            host.copy_(block.values, non_blocking=True)
            copied = cuda.Event()
            copied.record(self._side[device])
        block.host, block.copied = host, copied

    def _read(self, block: _Block, values: "Any") -> None:
        numbers, at = values.tolist(), 0
        for key, count in block.keys:
            self._take(key, numbers[at : at + count])
            at += count
        self._free.setdefault(block.values.device, []).append(block)

    def finish(self) -> None:
        """Read all blocks, and wait for them."""
        for device, block in list(self._filling.items()):
            self._seal(device, block)
        while self._sealed:
            block = self._sealed[0]
            for event in block.events:
                event.synchronize()
            self._read(block, block.values.cpu())
            del self._sealed[0]


class _Process:
    """What this process has computed so far."""

    def __init__(self, torch: "Any") -> None:
        self.pid, self.folder = os.getpid(), os.environ.get("PERFPIPE_INJECT_DIR", "")
        self._torch, self._tape = torch, _Tape(torch, self._take)
        self._lock = threading.RLock()
        self._losses: "dict[int, float]" = {}
        self._loss_dtype = ""
        self._accumulates = False  # whether a backward, not only a grad, was seen
        self._outputs: "dict[int, dict[str, Any]]" = {}
        kinds = ("gradients", "parameters", "updates")
        self._norms: "dict[str, dict[int, float]]" = {kind: {} for kind in kinds}
        self._before: "Any" = None  # optimizer that is in its step, and parts of its parameters
        self._tokens: "dict[int, list[int]]" = {}
        self._counts = {"backward": 0, "steps": 0, "calls": 0, "tokens": 0}
        self._fresh = True  # whether something was computed since the latest step
        self._look_ns = self._due_ns = 0

    def _record(self, key: "Any", values: "Any") -> None:
        if values.device.type != "meta":
            self._tape.put(key, values)

    def _traced(self) -> bool:
        """Return whether calls are traced or captured; a copy of the process records nothing."""
        torch = self._torch
        inner = getattr(torch._C, "_len_torch_dispatch_stack", None)
        if self.pid != os.getpid() or (inner is not None and inner()):
            return True
        return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

    def backward(self, roots: "Any", accumulates: bool) -> None:
        """Record the scalars of a backward pass, or of a gradient, which is about to run."""
        torch = self._torch
        nested = getattr(torch._C, "_current_graph_task_id", None)
        if self._traced() or (nested is not None and nested() != -1):
            return
        with self._lock, torch.no_grad():
            self._counts["backward"] += 1
            self._fresh = True
            if accumulates and not self._accumulates:
                self._accumulates = True  # gradients alone are losses only where nothing else is
                self._tape, self._losses = _Tape(torch, self._take), {}
                self._loss_dtype = ""
            if accumulates != self._accumulates or self._counts["steps"] >= MOST:
                return
            step = self._counts["steps"] + 1
            if not self._counts["steps"] and self._counts["backward"] > MOST:
                return
            for root in (roots,) if isinstance(roots, torch.Tensor) else roots:
                if isinstance(root, torch.Tensor) and root.numel() == 1:
                    self._loss_dtype = self._loss_dtype or _name(root.dtype)
                    self._record(("loss", step), _local(root).detach())

    def called(self, module: "Any", output: "Any") -> None:
        """Record an output of an outermost module."""
        if self._traced():
            return
        with self._lock:
            self._counts["calls"] += 1
            call, self._fresh = self._counts["calls"], True
            if not call & (call - 1):
                with self._torch.no_grad():
                    self._output(call, output)
            self._look(call == 1)

    def _output(self, call: int, output: "Any") -> None:
        torch = self._torch
        found = [one for one in _tensors(torch, output, _DEEPEST) if one.numel()]
        # A scalar is a loss that the model returns before its result.
        found.sort(key=lambda one: not one.dim())
        for one in found[:1]:
            one = _local(one).detach()
            if not one.is_floating_point() and not one.is_complex():
                one = one.to(torch.float32)
            if one.is_complex():
                one = torch.view_as_real(one)
            wide = torch.float64 if one.dtype == torch.float64 else torch.float32
            norm = torch.linalg.vector_norm(one, dtype=wide)
            picked = torch.stack([one[at] for at in _places(one.shape)])
            numbers = torch.cat([norm.reshape(1), picked.to(wide)])
            self._record(("output", call, _name(one.dtype)), numbers)

    def before_step(self, optimizer: "Any") -> None:
        """Record the norm of the gradients."""
        if self._traced() or not self._fresh:
            return
        step = self._counts["steps"] + 1
        if not step & (step - 1):
            with self._lock:
                chosen = _chosen(optimizer)
                self._norm("gradients", step, [one.grad for one in chosen])
                if step == 1:
                    self._norm("parameters", 0, [one.detach() for one in chosen])
                self._before = optimizer, [_part(one).clone() for one in chosen]

    def after_step(self, optimizer: "Any", number: int) -> None:
        """Record the norm of the parameters; `number` counts steps, from 1."""
        if self._traced() or number == self._counts["steps"]:
            return
        with self._lock:
            self._counts["steps"], self._fresh = number, False
            if not number & (number - 1):
                chosen, before = _chosen(optimizer), self._before
                self._norm("parameters", number, [one.detach() for one in chosen])
                if before is not None and before[0] is optimizer:
                    pairs = zip(chosen, before[1])  # noqa: B905  not in Python 3.8
                    self._norm("updates", number, [_part(one) - own for one, own in pairs])
            self._before = None
            self._look(number == 1)

    def _norm(self, what: str, step: int, tensors: "list[Any]") -> None:
        """Record the norm over some tensors."""
        torch = self._torch
        with torch.no_grad():
            found = [_local(own) for own in tensors if own is not None]
            found = [own for own in found if own.layout == torch.strided and own.numel()]
            found = [own for own in found if own.device == found[0].device]
            if found:
                try:
                    norms = torch._foreach_norm(found, 2, dtype=torch.float32)
                except TypeError:  # before this argument, norms have the type of the parameters
                    norms = [own.to(torch.float32) for own in torch._foreach_norm(found)]
                self._record((what, step), torch.linalg.vector_norm(torch.stack(norms)))

    def generated(self, ids: "Any") -> None:
        """Record the latest token of each sequence; `ids` has a row per sequence."""
        if self._traced():
            return
        with self._lock:
            self._counts["tokens"] += 1
            number = self._counts["tokens"]
            if number <= MOST:
                with self._torch.no_grad():
                    self._record(("token", number), ids[:SAMPLED, -1])
            self._look(number == 1)

    def _take(self, key: "Any", numbers: "list[float]") -> None:
        """Keep the numbers of a value that has reached the host."""
        kind, at = key[0], key[1]
        if kind == "loss":
            self._losses[at] = self._losses.get(at, 0.0) + numbers[0]
        elif kind == "output":
            own = {"call": at, "norm": numbers[0], "values": numbers[1:], "dtype": key[2]}
            self._outputs[at] = own
        elif kind == "token":
            self._tokens[at] = [int(one) for one in numbers]
        else:
            self._norms[kind][at] = numbers[0]

    def _look(self, first: bool) -> None:
        """Now and then, bring complete values to the host, and write a report."""
        now = _clock()
        if first or now >= self._due_ns:
            self.write(False)
        elif now >= self._look_ns:
            self._look_ns = now + LOOK_NS
            self._tape.look()

    def write(self, ended: bool) -> None:
        """Write the results if there are any; wait for those of the GPU only if it has ended."""
        if self.pid != os.getpid() or not self.folder or not any(self._counts.values()):
            return
        now, before = _clock(), _set_eval_frame(None)
        try:
            with self._lock:
                complete = False
                try:
                    if ended:
                        self._tape.finish()
                        complete = True
                    else:
                        self._tape.look(seal=True)
                except Exception:  # after an error of CUDA
                    pass
                text = json.dumps(self._report(complete))
            temporary = os.path.join(self.folder, ".results.%d" % self.pid)
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, os.path.join(self.folder, "results.%d.json" % self.pid))
        finally:
            _set_eval_frame(before)
            self._due_ns = now + max(EVERY_NS, int((_clock() - now) / WRITING_SHARE))

    def _report(self, complete: bool) -> "dict[str, Any]":
        return {
            "pid": self.pid,
            "parent": os.getppid(),
            "rank": os.environ.get("RANK"),
            "losses": sorted(self._losses.items()),
            "loss_dtype": self._loss_dtype,
            "outputs": [own for _, own in sorted(self._outputs.items())],
            **{
                what: [{"step": step, "norm": norm} for step, norm in sorted(own.items())]
                for what, own in self._norms.items()
            },
            "tokens": sorted(self._tokens.items()),
            "counts": self._counts,
            "complete": complete,
        }


def _name(dtype: "Any") -> str:
    return str(dtype).replace("torch.", "")


def _local(tensor: "Any") -> "Any":
    """Return the part of a distributed tensor that this process has."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _chosen(optimizer: "Any") -> "list[Any]":
    """Return some parameters of an optimizer, evenly chosen."""
    every = [one for group in optimizer.param_groups for one in group["params"]]
    count = min(PARAMETERS, len(every))
    return [every[at * (len(every) - 1) // max(1, count - 1)] for at in range(count)]


def _part(parameter: "Any") -> "Any":
    """Return the first values of a parameter, without a copy."""
    part = _local(parameter).detach()
    while part.dim() > 1 and part.numel() > UPDATED:
        part = part[: max(1, UPDATED * part.shape[0] // part.numel())]
        part = part[0] if part.shape[0] == 1 else part
    return part[:UPDATED] if part.dim() == 1 else part


def _tensors(torch: "Any", output: "Any", depth: int) -> "Iterator[Any]":
    """Yield the tensors in an output, in its order."""
    if isinstance(output, torch.Tensor):
        yield output
        return
    parts: "Any" = ()
    if isinstance(output, dict):
        parts = output.values()
    elif isinstance(output, (list, tuple)):
        parts = output
    elif hasattr(output, "__dataclass_fields__"):
        parts = [getattr(output, name, None) for name in output.__dataclass_fields__]
    for part in list(parts)[:_WIDEST] if depth else ():
        for one in _tensors(torch, part, depth - 1):
            yield one


def _places(shape: "Any") -> "Iterator[tuple[int, ...]]":
    """Yield the places of the values to sample: evenly spaced, the same for every layout."""
    size = 1
    for length in shape:
        size *= length
    count = min(SAMPLED, size)
    for number in range(count):
        # In the middle of each part: ends are often zeros of padding.
        rest, place = (2 * number + 1) * size // (2 * count), []
        for length in reversed(shape):
            place.append(rest % length)
            rest //= length
        yield tuple(reversed(place))


_process: "Any" = None


def _forked() -> None:
    """Start again in a forked child, which must not free what is on the GPU."""
    global _process
    before, _process = _process, _Process(sys.modules["torch"])
    _process.parent = before


def _safely(name: str, *args: "Any") -> None:
    try:
        getattr(_process, name)(*args)
    except Exception:  # the program goes on
        pass


def called(module: "Any", output: "Any") -> None:
    """Record that an outermost module with parameters was called."""
    _safely("called", module, output)


def before_step(optimizer: "Any") -> None:
    """Record that an optimizer is about to step."""
    _safely("before_step", optimizer)


def after_step(optimizer: "Any", number: int) -> None:
    """Record that an optimizer has made a step; optimizers of one step have the same number."""
    _safely("after_step", optimizer, number)


def generated(ids: "Any") -> None:
    """Record that tokens were appended to sequences; `ids` has a row per sequence."""
    _safely("generated", ids)


def write(ended: bool) -> None:
    """Write the results; with `ended` this waits for the GPU."""
    _safely("write", ended)


def install(torch: "Any") -> None:
    """Record backward passes from now on; PyTorch has been imported."""
    global _process
    _process = _Process(torch)
    os.register_at_fork(after_in_child=_forked)
    autograd = torch.autograd
    engine = getattr(autograd, "_engine_run_backward", None)
    if engine is not None:  # behind backward and grad, also where a program has imported these
        autograd._engine_run_backward = _recorded(engine, None)
    else:
        autograd.backward = _recorded(autograd.backward, True)
        autograd.grad = _recorded(autograd.grad, False)


def _recorded(run: "Callable[..., Any]", accumulates: "Any") -> "Callable[..., Any]":
    """Return a function that records the roots of a backward pass, and runs it."""

    @functools.wraps(run)
    def recorded(*args: "Any", **kwargs: "Any") -> "Any":
        roots = args[0] if args else kwargs.get("tensors", kwargs.get("outputs", ()))
        gathers = kwargs.get("accumulate_grad", False) if accumulates is None else accumulates
        _safely("backward", roots, bool(gathers))
        return run(*args, **kwargs)

    recorded._torchdynamo_inline = run  # type: ignore[attr-defined]
    return recorded


def after_dynamo(eval_frame: "Any") -> None:
    """Let torch.compile skip the functions of this file, as it skips those of PyTorch."""
    global _set_eval_frame
    autograd = sys.modules["torch.autograd"]
    names = [*globals().values(), *vars(_Process).values(), *vars(_Tape).values()]
    names += [vars(autograd).get(name) for name in ("_engine_run_backward", "backward", "grad")]
    own = [one.__code__ for one in names if isinstance(one, type(_nothing))]
    codes = [code for code in own if code.co_filename == _nothing.__code__.co_filename]
    for code in codes:
        eval_frame.skip_code(code)
        codes += [one for one in code.co_consts if isinstance(one, type(code))]
    _set_eval_frame = eval_frame.set_eval_frame
