"""Runs a Python file under torch.profiler: TRACE SETTINGS FILE [ARGUMENTS].

With the setting capture_range=cudaProfilerApi, only the code between torch.cuda.profiler.start and
stop is recorded, else the whole program.
"""

import json
import runpy
import signal
import sys
from pathlib import Path


def main() -> None:
    """Run the file as the main program."""
    import torch

    trace, settings, program = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    part = settings.pop("capture_range") == "cudaProfilerApi"
    sys.argv = sys.argv[3:]
    sys.path.insert(0, str(Path(program).resolve().parent))
    profiler = torch.profiler.profile(**settings)
    if part:
        torch.cuda.profiler.start = profiler.start
        torch.cuda.profiler.stop = profiler.stop
    else:
        profiler.start()
    code: str | int | None = 0
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        # It is ended at its time limit; the events recorded by then are kept.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not part:
        profiler.stop()
    if code in (0, None):
        profiler.export_chrome_trace(trace)
    sys.exit(code)


if __name__ == "__main__":
    main()
