"""The program of a launch that profiles a Python function: prepares a configuration and runs it.

    python driver.py --path DIR --file FILE [--module NAME] --function NAME --warmup N --repeats N
                     PARAMETER=VALUE...

The function is called with the parameters.  If it returns a callable, this is the step; otherwise a
step is a call of the function.  A function that uses PyTorch is timed as the example workloads are
(workloads/harness.py), any other by the wall time of each step.  Prints the same lines.

Runs on the interpreter of the function, from Python 3.8 on, with the standard library only: that
interpreter may lack perfpipe.  `import perfpipe` in FILE then finds the package of this file.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HERE = Path(__file__).absolute().parent

#: Name of a script that is loaded: as in multiprocessing, not __main__, so that what it guards by
#: that name does not run.
_SCRIPT = "__perfpipe_main__"


def main() -> int:
    """Run one configuration and return the exit code."""
    options = _options()
    sys.path[0] = options.path
    functions = _package()
    functions.launched = True
    pairs = (text.partition("=") for text in options.parameters)
    parameters = {name: functions.value_of(text) for name, _, text in pairs}
    try:
        function = _found(options, functions)
        made = function(**parameters)
        step = made if callable(made) else lambda: function(**parameters)
        if "torch" in sys.modules:
            return int(_harness().measure(argparse.Namespace(**vars(options), cold=False), step))
        return _measure(step, options)
    except Exception as error:
        if "torch" not in sys.modules:
            raise
        return _fits(error)


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(description="Run a function for perfpipe.")
    for name in ("path", "file", "function"):
        made.add_argument("--" + name, required=True)
    made.add_argument("--module")
    made.add_argument("--warmup", type=int, required=True)
    made.add_argument("--repeats", type=int, required=True, dest="iterations")
    made.add_argument("parameters", nargs="*")
    return made.parse_args()


def _package() -> Any:
    """Make `import perfpipe` find the package of this file, and return its module `functions`."""
    spec = importlib.util.spec_from_file_location(
        "perfpipe", _HERE / "__init__.py", submodule_search_locations=[str(_HERE)]
    )
    _load("perfpipe", spec)
    return importlib.import_module("perfpipe.functions")


def _load(name: str, spec: Any) -> ModuleType:
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _found(options: argparse.Namespace, functions: Any) -> Callable[..., Any]:
    """Load the file, as far as its first call of perfpipe.profile, and return the function."""
    if options.module:
        name, spec = options.module, importlib.util.find_spec(options.module)
    else:
        name, spec = _SCRIPT, importlib.util.spec_from_file_location(_SCRIPT, options.file)
    with contextlib.suppress(functions.InLaunch):
        _load(name, spec)
    found: Any = sys.modules[name]
    for part in options.function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        sys.exit(
            f"{options.file} asks for a profile before it defines {options.function}: call profile "
            "below 'if __name__ == \"__main__\":'"
        )
    return found  # type: ignore[no-any-return]


def _harness() -> Any:
    """Return the code that the example workloads share; it imports PyTorch."""
    path = _HERE / "workloads" / "harness.py"
    spec = importlib.util.spec_from_file_location("perfpipe_harness", path)
    return sys.modules.get("perfpipe_harness") or _load("perfpipe_harness", spec)


def _fits(error: Exception) -> int:
    """Return the exit code of a configuration that does not fit the GPU; raises other errors."""

    def again() -> int:
        raise error

    return int(_harness().guarded(again))


def _measure(step: Callable[[], object], options: argparse.Namespace) -> int:
    """Warm up, then time steps or run them for a profiler, without PyTorch."""
    for _ in range(max(1, options.warmup)):
        step()
    collector = os.environ.get("PERFPIPE_COLLECTOR", "plain")
    if collector != "plain":
        with _profiled():
            for _ in range(1 if collector == "ncu" else options.iterations):
                step()
        return 0
    times = []
    for _ in range(options.iterations):
        start = time.perf_counter_ns()
        step()
        times.append((time.perf_counter_ns() - start) / 1e6)
    message = {"perfpipe": "time", "ms": times, "method": "wall clock"}
    sys.stdout.write(json.dumps(message) + "\n")
    return 0


@contextlib.contextmanager
def _profiled() -> Iterator[None]:
    """Record this block in a profiler that waits for cudaProfilerStart; needs no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        driver = None
    if driver is not None:
        driver.cuProfilerStart()
    yield
    if driver is not None:
        driver.cuProfilerStop()


if __name__ == "__main__":
    sys.exit(main())
