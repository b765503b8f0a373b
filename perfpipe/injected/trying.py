"""Applies levers to a program that is observed: changes which `perfpipe try` measures.

$PERFPIPE_TRY_PLAN names a JSON file: {"levers": [{"name", "file", "options"}], "record", "steps",
"seed", "verify"}.  observe.py records times as usual, and recording.py records results if "record"
is set.  The file of each lever is executed, in the order of the plan, as soon as PyTorch has been
imported.  With "steps", the program ends after as many steps, tokens or calls.  "seed" is for the
random numbers of programs that set none.  With "verify", levers take further options, because the
launch only compares results.

Each process that writes report.PID.json also writes levers.PID.json: what was applied where, what
was refused and why, what failed.  A lever that fails leaves the program as it is.  See
sitecustomize.py for the contract of this file, and docs/architecture.md for that of levers.
"""

import array
import functools
import json
import os
import sys
import threading
import time
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from perfpipe.injected.own import Own

# imports.py gives these to every helper.
after: "Callable[[str, Callable[[Any], Any]], None]" = globals()["after"]
load: "Callable[[str], dict[str, Any]]" = globals()["load"]

#: What PyTorch says outside of backward passes.
NO_BACKWARD = -1

#: Number of compilations and of steps whose times are kept.
MOST_SPANS, MOST_STEPS = 4096, 1 << 14

#: Libraries that levers may need.
SEEN = ("transformers",)

#: Stands among them for activation checkpointing.
CHECKPOINTING = "checkpointing"

_clock = time.perf_counter_ns


def _layer(
    own: "Own", function: "Any", call: "Any", module: "Any", /, *args: "Any", **kwargs: "Any"
) -> "Any":
    """Make a call through a function of a lever."""
    return own.call(function, call, module, args, kwargs)


class _GpuSteps:
    """When the GPU ended each step: the host runs ahead, so its own times are not enough.

    An event is recorded on the current stream after each step, and read when the GPU has passed
    it, so nothing waits.  `ms` are the times from one event to the next.
    """

    def __init__(self, torch: "Any") -> None:
        self._cuda = torch.cuda
        self._free: "list[Any]" = []
        self.waiting: "list[Any]" = []
        self._last: "Any" = None
        self.ms = array.array("d")
        self.failed = False

    def stepped(self) -> None:
        """Record an event, and read those that the GPU has passed."""
        if self.failed or len(self.ms) >= MOST_STEPS or not self._cuda.is_initialized():
            return
        if self._cuda.is_current_stream_capturing():
            self.failed = True  # the steps run in a graph
            return
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        self.waiting.append(event)
        self.read()

    def read(self) -> None:
        """Read the events that the GPU has passed."""
        while self.waiting and self.waiting[0].query():
            event = self.waiting.pop(0)
            if self._last is not None:
                self.ms.append(self._last.elapsed_time(event))
                self._free.append(self._last)
            self._last = event


class _Trial:
    """What this process does by the plan, and has done so far."""

    def __init__(self, plan: "dict[str, Any]") -> None:
        self.plan = plan
        self.levers: "list[Own]" = []
        self.torch: "Any" = None
        self.backward: "Callable[[], int]" = lambda: NO_BACKWARD
        self.models: "dict[int, Any]" = {}  # by id of a module: a reference, whether a model
        self.compiling: "list[list[int]]" = []
        self.kept: "list[Any]" = []  # never used again
        self.used: "set[str]" = set()  # what levers may need, besides libraries
        self.restart()

    def restart(self) -> None:
        """Count from the beginning, as a forked child does."""
        self.steps = self.tokens = self.stopped_ns = 0
        self.trains = False
        self.memory: "dict[str, int] | None" = None
        self.gpu_steps: "_GpuSteps | None" = None

    def forked(self) -> None:
        """Start again in a forked child, where destroying CUDA events can end the process."""
        self.kept.append(self.gpu_steps)
        self.restart()

    def install(self, torch: "Any") -> None:
        """Let the levers register what they do."""
        self.torch = torch
        self.backward = getattr(torch._C, "_current_graph_task_id", lambda: NO_BACKWARD)
        for entry in self.plan["levers"]:
            options, unwrapped = entry.get("options") or {}, observe["_unwrapped"]
            own = _own["Own"](entry["name"], options, torch, after, load, unwrapped)
            self.levers.append(own)
            own.safely(self._install, own, entry)

    def _install(self, own: "Own", entry: "dict[str, Any]") -> None:
        names = load(entry["file"])
        if self.plan.get("verify"):
            own.options = {**own.options, **names.get("VERIFY", {})}
        after("torch._dynamo.eval_frame", lambda frames: observe["skip"](frames, names))
        names["install"](own)

    def known(self, module: "Any") -> bool:
        """Return whether a module has parameters; if it is new, show it to the levers."""
        known = self.models.get(id(module))
        if known is not None and known[0]() is module:
            return bool(known[1])
        models, key = self.models, id(module)
        model = next(iter(module.parameters()), None) is not None
        models[key] = weakref.ref(module, lambda _: models.pop(key, None)), model
        if model:
            for own in self.levers:
                for function in own.models:
                    own.safely(function, module)
        return model

    def around(self, call: "Any", module: "Any", args: "Any", kwargs: "Any") -> "Any":
        """Make an outermost call."""
        try:
            # A backward pass calls parts of models to compute activations again.
            inner = self.torch.jit.is_tracing() or self.backward() != NO_BACKWARD
            model = not inner and self.known(module)
        except Exception:
            model = False
        if not model:
            return call(module, *args, **kwargs)
        for own in reversed(self.levers):
            for function in reversed(own.around):
                call = functools.partial(_layer, own, function, call)
        result = call(module, *args, **kwargs)
        if recording:
            _quietly(recording["called"], module, result)
        if self.plan.get("steps") and not self.trains and not self.steps and not self.tokens:
            kinds = observe["_process"].modules.values()
            self.end_after(max(kinds, key=lambda one: one[0], default=(0, 0))[1])
        return result

    def stepped(self, optimizer: "Any", begun: bool) -> None:
        """Run what is to run after a call of an optimizer."""
        self.steps += begun
        if begun:
            _quietly(self._time_on_gpu)
        if recording:
            _quietly(recording["after_step"], optimizer, self.steps)
        if begun:
            for own in self.levers:
                for function in own.steps:
                    own.safely(function, self.steps)
            self.end_after(self.steps)

    def _time_on_gpu(self) -> None:
        """Record when the GPU ends a step."""
        if self.gpu_steps is None:
            self.gpu_steps = _GpuSteps(self.torch)
        self.gpu_steps.stepped()

    def generated(self, ids: "Any") -> None:
        """Count a token of each sequence; `ids` are all tokens."""
        self.tokens += 1
        if recording:
            _quietly(recording["generated"], ids)
        if not self.trains and not self.steps:
            self.end_after(self.tokens)

    def end_after(self, units: int) -> None:
        """End the program if it has done as much as the plan says, and its GPU work has ended."""
        if not self.plan.get("steps") or units < self.plan["steps"]:
            return
        if threading.current_thread() is not threading.main_thread():
            return  # only the thread would end
        if not self.stopped_ns:
            _quietly(self._synchronize)
            self.stopped_ns = _clock()
        raise SystemExit(0)

    def _synchronize(self) -> None:
        cuda = self.torch.cuda
        if cuda.is_initialized():
            cuda.synchronize()

    def report(self, now: int, ended: bool) -> None:
        """Write levers.PID.json."""
        if recording:
            _quietly(recording["write"], ended)
        process = observe["_process"]
        if self.gpu_steps is not None:
            _quietly(self.gpu_steps.read)
            if ended and self.gpu_steps.waiting:
                _quietly(self._synchronize)
                _quietly(self.gpu_steps.read)
        content = {
            "pid": process.pid,
            "parent": os.getppid(),
            "rank": os.environ.get("RANK"),
            "local_rank": os.environ.get("LOCAL_RANK"),
            "argv": getattr(sys, "argv", [])[:4],
            "torch": str(getattr(self.torch, "__version__", "")),
            "ended": ended,
            "stopped_ns": self.stopped_ns or None,
            "levers": [own.report() for own in self.levers],
            "memory": self._memory(),
            "compiling_ns": [[start, end or now] for start, end in self.compiling],
            "gpu_steps_ms": self._gpu_steps_ms(),
            "seen": [*self.used, *(name for name in SEEN if name in sys.modules)],
        }
        process.save("levers", content)

    def _gpu_steps_ms(self) -> "list[float] | None":
        """Return the times of steps on the GPU; None if they are not all known."""
        own = self.gpu_steps
        return None if own is None or own.failed or not own.ms else own.ms.tolist()

    def _memory(self) -> "dict[str, int] | None":
        """Return the peaks of the GPU with the largest; the program may reset them meanwhile."""
        try:
            cuda = self.torch.cuda
            if cuda.is_initialized():
                for device in range(cuda.device_count()):
                    found = {
                        "allocated_bytes": cuda.max_memory_allocated(device),
                        "reserved_bytes": cuda.max_memory_reserved(device),
                        "total_bytes": cuda.get_device_properties(device).total_memory,
                    }
                    before = self.memory or found
                    peaks = before["reserved_bytes"] < found["reserved_bytes"]
                    self.memory = found if peaks else before
        except Exception:
            pass
        return self.memory


def _quietly(function: "Callable[..., Any]", *args: "Any") -> None:
    """Run a function; no error of it reaches the program."""
    try:
        function(*args)
    except Exception:
        pass


def _plan() -> "dict[str, Any]":
    """Return the plan; without one the program is observed only."""
    try:
        with open(os.environ["PERFPIPE_TRY_PLAN"], "rb") as file:
            plan = json.loads(file.read())
        return {**plan, "levers": list(plan["levers"]), "steps": int(plan.get("steps") or 0)}
    except Exception:
        return {"levers": []}


observe, _own = load("observe.py"), load("own.py")
_trial = _Trial(_plan())
recording: "dict[str, Any]" = {}


def _before_step(optimizer: "Any", args: "Any", kwargs: "Any") -> None:
    _quietly(recording["before_step"], optimizer)


def _after_step(optimizer: "Any", begun: bool) -> None:
    _trial.stepped(optimizer, begun)


def _after_token(ids: "Any") -> None:
    _trial.generated(ids)


def _after_report(now: int, ended: bool) -> None:
    _quietly(_trial.report, now, ended)


def _around(call: "Any", module: "Any", args: "Any", kwargs: "Any") -> "Any":
    return _trial.around(call, module, args, kwargs)


def _noticed(init: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return the __init__ of Optimizer, that also notices that the program trains."""

    @functools.wraps(init)
    def noticed_init(self: "Any", *args: "Any", **kwargs: "Any") -> None:
        _trial.trains = True
        init(self, *args, **kwargs)

    return noticed_init


def after_modules(module: "Any") -> None:
    """Observe calls."""
    observe["after_modules"](module)


def after_torch(torch: "Any") -> None:
    """Observe steps, and apply the levers."""
    os.register_at_fork(after_in_child=_trial.forked)
    observe["after_torch"](torch)
    if _trial.plan.get("seed") is not None:
        pinned = bool(_trial.plan.get("verify"))
        _quietly(load("seeding.py")["install"], torch, _trial.plan["seed"], after, pinned)
    if _trial.plan.get("record"):
        _quietly(_record, torch)
    optimizers = sys.modules["torch.optim.optimizer"]
    if _trial.plan.get("steps"):
        optimizers.Optimizer.__init__ = _noticed(optimizers.Optimizer.__init__)
    _trial.install(torch)
    observe.update(
        around=_around,
        after_step=_after_step,
        after_token=_after_token,
        after_report=_after_report,
    )
    after("torch._dynamo.callback", _time_compiler)


def _record(torch: "Any") -> None:
    """Record the program's results."""
    global recording
    names = load("recording.py")
    names["install"](torch)
    after("torch._dynamo.eval_frame", names["after_dynamo"])
    recording = names
    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(_before_step)
    if not _trial.plan["levers"]:
        after("torch.utils.checkpoint", _notice_checkpointing)


def _notice_checkpointing(module: "Any") -> None:
    """Notice the calls that both ways of checkpointing make."""
    for name in ("check_backward_validity", "_checkpoint_without_reentrant_generator"):
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, _noticing(original))


def _noticing(original: "Callable[..., Any]") -> "Callable[..., Any]":
    @functools.wraps(original)
    def called(*args: "Any", **kwargs: "Any") -> "Any":
        _trial.used.add(CHECKPOINTING)
        return original(*args, **kwargs)

    return called


def after_stopping(stopping: "Any") -> None:
    """Observe tokens."""
    observe["after_stopping"](stopping)


def after_jax(jax: "Any") -> None:
    """Tell perfpipe that the program uses JAX, which has no hooks."""
    path = os.path.join(os.environ["PERFPIPE_INJECT_DIR"], "seen.jax")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def after_dynamo(eval_frame: "Any") -> None:
    """Let torch.compile skip the functions of this file."""
    observe["after_dynamo"](eval_frame)
    observe["skip"](eval_frame, globals())
    observe["skip"](eval_frame, _own)
    _before_step._torchdynamo_inline = observe["_nothing"]  # type: ignore[attr-defined]


def _time_compiler(callback: "Any") -> None:
    """Record when torch.compile compiles."""
    spans, depth = _trial.compiling, [0]

    def begun(*args: "Any") -> None:
        depth[0] += 1
        if depth[0] == 1 and len(spans) < MOST_SPANS:
            spans.append([_clock(), 0])

    def ended(*args: "Any") -> None:
        depth[0] = max(0, depth[0] - 1)
        if not depth[0] and spans and not spans[-1][1]:
            spans[-1][1] = _clock()

    callback.on_compile_start(begun)
    callback.on_compile_end(ended)
