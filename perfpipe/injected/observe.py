"""Records when PyTorch's optimizers step and when its outermost modules are called, on the host.

Nothing is synchronized: a time says when the host issued work, not when the GPU executed it.  Each
process writes report.PID.json into $PERFPIPE_INJECT_DIR: at its first step, every two seconds, and
at exit, so a process that is killed loses at most two seconds.  The times are those of
time.perf_counter_ns.  See sitecustomize.py for the contract of this file.
"""

import array
import atexit
import functools
import json
import os
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: Number of times that are kept, of steps and of calls of each class; later ones are only counted.
MOST_TIMES = 1 << 14

#: Number of optimizers, and of classes of modules, that are distinguished.
MOST_KINDS = 32

#: Time between reports, ns; it is longer if writing would take more than this share of the time.
EVERY_NS, WRITING_SHARE = 2_000_000_000, 1 / 200

#: Names of the only child of a module that wraps another one: torch.compile, DDP, FSDP.
INNER = ("_orig_mod", "module", "_fsdp_wrapped_module")


def _nothing(*args: "Any") -> None:
    """Do nothing; torch.compile traces this function instead of the hook."""


#: What trying.py does around an outermost call, after a step, for each token, and with a report.
around: "Callable[..., Any] | None" = None
after_step: "Callable[[Any, bool], Any]" = _nothing
after_token: "Callable[[Any], Any]" = _nothing
after_report: "Callable[[int, bool], Any]" = _nothing

#: Sets what torch.compile does with the frames of this thread, and returns what it did before.
_set_eval_frame: "Callable[[Any], Any]" = _nothing

_clock = time.perf_counter_ns


class _Local(threading.local):
    """Whether a thread is in a call of a module."""

    inside = False


class _Process:
    """What this process has done so far."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.folder = os.environ.get("PERFPIPE_INJECT_DIR", "")
        self.optimizers: "dict[int, list[Any]]" = {}  # by id: index, class, parameters, steps
        self.modules: "dict[type, list[Any]]" = {}  # by class: parameters, calls, times
        self.steps = array.array("q")  # of each step: time, index of the optimizer, calls before
        self.calls = 0  # outermost calls
        self.calls_before = 0  # outermost calls since the latest step
        self.tokens = array.array("q")  # the time of each token that transformers generated
        self.due_ns = 0

    def stepped(self, optimizer: "Any") -> bool:
        """Record a step, unless it is a part of one: no call was made since the latest one."""
        now = _clock()
        own = self.optimizers.get(id(optimizer))
        if own is None:
            if len(self.optimizers) >= MOST_KINDS:
                return False
            groups = optimizer.param_groups
            size = sum([one.numel() for group in groups for one in group["params"]])
            own = [len(self.optimizers), type(optimizer).__name__, size, 0]
            self.optimizers[id(optimizer)] = own
        own[3] += 1
        if self.calls and not self.calls_before:
            return False
        if len(self.steps) < 3 * MOST_TIMES:
            self.steps.extend((now, own[0], self.calls_before))
        self.calls_before = 0
        if now >= self.due_ns:
            self.write(now)
        return True

    def generated(self) -> None:
        """Record a token: of all sequences of a batch together."""
        if len(self.tokens) < MOST_TIMES:
            self.tokens.append(_clock())

    def called(self, module: "Any") -> None:
        """Record an outermost call, unless the module has no parameters, like most losses."""
        module = _unwrapped(module)
        own = self.modules.get(type(module))
        if own is None:
            sizes = [one.numel() for one in module.parameters()]
            if not sizes or len(self.modules) >= MOST_KINDS:
                return
            own = self.modules[type(module)] = [sum(sizes), 0, array.array("q")]
        now = _clock()
        own[1] += 1
        if own[1] <= MOST_TIMES:
            own[2].append(now)
        self.calls += 1
        self.calls_before += 1
        if now >= self.due_ns and not self.steps:
            self.write(now)

    def write(self, now: int, ended: bool = False) -> None:
        """Write the report if there is something to report; a copy of the process does not."""
        if self.pid != os.getpid() or not self.folder or not (self.optimizers or self.modules):
            return
        before = _set_eval_frame(None)
        try:
            self.save("report", self._report(now, ended))
            after_report(now, ended)
        finally:
            _set_eval_frame(before)
            self.due_ns = now + max(EVERY_NS, int((_clock() - now) / WRITING_SHARE))

    def save(self, kind: str, content: "dict[str, Any]") -> None:
        """Write a file of this process, which replaces the one that it wrote before."""
        temporary = os.path.join(self.folder, ".%s.%d" % (kind, self.pid))
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(file, "wb") as opened:
            opened.write(json.dumps(content).encode())
        os.replace(temporary, os.path.join(self.folder, "%s.%d.json" % (kind, self.pid)))

    def _report(self, now: int, ended: bool) -> "dict[str, Any]":
        torch = sys.modules["torch"]
        return {
            "pid": self.pid,
            "parent": os.getppid(),
            "rank": os.environ.get("RANK"),
            "local_rank": os.environ.get("LOCAL_RANK"),
            "argv": getattr(sys, "argv", [])[:4],
            "python": sys.version.split()[0],
            "torch": str(getattr(torch, "__version__", "")),
            "gpu": bool(hasattr(torch, "cuda") and torch.cuda.is_initialized()),
            "written_ns": now,
            "ended": ended,
            "optimizers": [
                {"class": name, "parameters": size, "steps": steps}
                for _, name, size, steps in self.optimizers.values()
            ],
            "steps": {
                "time_ns": self.steps[0::3].tolist(),
                "optimizer": self.steps[1::3].tolist(),
                "calls": self.steps[2::3].tolist(),
            },
            "modules": [
                {"class": kind.__name__, "parameters": size, "calls": calls, "time_ns": [*times]}
                for kind, (size, calls, times) in self.modules.items()
            ],
            "tokens": {"time_ns": self.tokens.tolist()},
        }


def _unwrapped(module: "Any") -> "Any":
    """Return the module that a wrapper such as DistributedDataParallel contains."""
    for _ in range(4):
        children = module._modules
        names = [name for name in INNER if name in children] if len(children) == 1 else []
        if not names:
            break
        module = children[names[0]]
    return module


_process, _local = _Process(), _Local()


def _forked() -> None:
    """Start again in a forked child."""
    global _process
    _process, _local.inside = _Process(), False
    _finish_children()


def _finish_children() -> None:
    """Let forked children of multiprocessing write a last report; they do not use atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_at_exit, lambda _: util.Finalize(None, _at_exit, exitpriority=0))


def _at_exit() -> None:
    try:
        _process.write(_clock(), ended=True)
    except Exception:  # perfpipe may have removed the folder
        pass


def _after_step(optimizer: "Any", args: "Any", kwargs: "Any") -> None:
    """Run after a step of any optimizer."""
    try:
        begun = _process.stepped(optimizer)
    except Exception:
        begun = False
    after_step(optimizer, begun)


def _observed(call: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a Module.__call__ that records outermost calls."""
    local = _local
    thin = call.__code__.co_names == ("_compiled_call_impl", "_call_impl")

    @functools.wraps(call)
    def observed_call(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        if local.inside:
            if not thin:
                return call(self, *args, **kwargs)
            # The whole of `call` since PyTorch 2.1, without another frame for every module.
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        try:
            _process.called(self)
        except Exception:
            pass
        local.inside = True
        try:
            if around is not None:
                return around(call, self, args, kwargs)
            return call(self, *args, **kwargs)
        finally:
            local.inside = False

    # torch.compile traces these instead, so its graphs are those of a program that is not observed.
    observed_call._torchdynamo_inline = call  # type: ignore[attr-defined]
    _after_step._torchdynamo_inline = _nothing  # type: ignore[attr-defined]
    return observed_call


def after_modules(module: "Any") -> None:
    """Observe calls, before other modules of PyTorch keep a reference to Module.__call__."""
    module.Module.__call__ = _observed(module.Module.__call__)


def after_torch(torch: "Any") -> None:
    """Observe optimizers, and write reports from now on."""
    os.register_at_fork(after_in_child=_forked)
    atexit.register(_at_exit)
    _finish_children()
    # PyTorch 1 does not have this hook: only calls of modules are recorded.
    optimizer = sys.modules["torch.optim.optimizer"]
    optimizer.register_optimizer_step_post_hook(_after_step)


def after_stopping(stopping: "Any") -> None:
    """Observe tokens: `generate` asks once for each whether to stop."""
    call = stopping.StoppingCriteriaList.__call__

    @functools.wraps(call)
    def observed_criteria(self: "Any", input_ids: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        try:
            _process.generated()
        except Exception:
            pass
        after_token(input_ids)
        return call(self, input_ids, *args, **kwargs)

    observed_criteria._torchdynamo_inline = call  # type: ignore[attr-defined]
    stopping.StoppingCriteriaList.__call__ = observed_criteria


def skip(eval_frame: "Any", names: "dict[str, Any]") -> None:
    """Let torch.compile skip the functions of a file, as it skips those of PyTorch."""
    own = list(names.values())
    own += [each for one in own if isinstance(one, type) for each in vars(one).values()]
    codes = [one.__code__ for one in own if isinstance(one, type(_nothing))]
    for code in codes:
        eval_frame.skip_code(code)
        codes += [one for one in code.co_consts if isinstance(one, type(code))]


def after_dynamo(eval_frame: "Any") -> None:
    """Let torch.compile skip the functions of this file."""
    global _set_eval_frame
    skip(eval_frame, globals())
    _set_eval_frame = eval_frame.set_eval_frame
