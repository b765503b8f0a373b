"""Stands for nsys or ncu: takes their options, runs the program, and writes a real recorded report.

A file FAULT beside it makes it fail as the real one does.
"""

from __future__ import annotations

import sys

if "--version" in sys.argv[1:]:
    # Most often it is asked for no more, which takes less than the imports below.
    print("NVIDIA tool, Version 2025.3.1.0")
    sys.exit()

import os
import re
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
VALUED = {"--export", "--output", "--type", "--set", "--section", "--metrics", "--kernel-name"}
FAULTS = {
    "permission": ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1, False),
    "nothing": ("==WARNING== No kernels were profiled.", 0, False),
    "libdw": (
        "Importer error status: cannot open shared object file libdw.so.1: No such file or directory",
        0,
        False,
    ),
    "driver": ("CUDA driver version is insufficient for CUDA runtime version", 1, False),
    "full": ("No space left on device", 1, False),
    "truncated": ("", 0, True),
}
#: Options of the verbs of a session, as their help lists them.
SESSION_OPTIONS = {
    "launch": (
        "--trace",
        "--trace-fork-before-exec",
        "--cuda-graph-trace",
        "--python-sampling",
        "--session-new",
    ),
    "start": ("--session", "--output", "--force-overwrite", "--sample", "--cpuctxsw"),
}


def main() -> int:
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if words[-1] == "--help" and words[0] in SESSION_OPTIONS:
        print("\n".join(f"\t{option}=\n\n\t   Explained." for option in SESSION_OPTIONS[words[0]]))
        return 0
    if words[-1] == "--help":
        print("--python-sampling=\n\t   Possible values are 'true' or 'false'.")
        print((HERE / "HELP").read_text() if (HERE / "HELP").exists() else "")
        return 0
    (HERE / f"{name}.log").open("a").write(" ".join(words) + "\n")
    fault = (HERE / "FAULT").read_text().strip() if (HERE / "FAULT").exists() else ""
    if name == "QdstrmImporter":
        Path(words[1].partition("=")[2]).write_text(Path(words[0].partition("=")[2]).read_text())
        return 0
    if name == "nsys" and words[0] == "export":
        target = next(w.partition("=")[2] for w in words if w.startswith("--output="))
        if not Path(words[-1]).is_file():
            return 1
        # Ranks have captures of their own where there are several.
        own = HERE / f"timeline{os.environ.get('SLURM_PROCID', '')}.sqlite"
        shutil.copyfile(own if own.exists() else HERE / "timeline.sqlite", target)
        if started := Path(words[-1]).read_text().partition(" ")[2]:
            move(target, int(started))
        return 0
    if name == "nsys" and words[0] in ("launch", "start", "stop", "cancel", "shutdown"):
        return session(words[0], words[1:], fault)
    start = 1 if name == "nsys" else 0
    command = next(i for i, w in enumerate(words) if i >= start and not w.startswith("-"))
    key = "--output=" if name == "nsys" else "--export="
    target = next(w.partition("=")[2] for w in words if w.startswith(key))
    target = re.sub(r"%q\{(\w+)\}", lambda name: os.environ.get(name[1], ""), target)
    if name == "nsys" and not target.endswith(".nsys-rep"):
        target += ".nsys-rep"
    if fault == "importer" and name == "nsys":
        Path(target).with_suffix(".qdstrm").write_text("raw")
        return 1
    if fault in FAULTS:
        text, code, truncated = FAULTS[fault]
        print(text)
        if not truncated:
            return code
    skips = any(w.startswith("--launch-skip-before-match") for w in words)
    if (fault == "fewer" and skips) or (
        fault == "children" and "application-only" in " ".join(words)
    ):
        if fault == "fewer":
            print("==PROF== Connected to process 1 (/usr/bin/true)")
        print("==WARNING== No kernels were profiled.")
        return 0
    if fault == "ncu-served" and name == "ncu":
        return served(words[command:], Path(target))
    if fault.startswith("ncu-") and name == "ncu":
        return guided(fault, Path(target))
    code = launch(words[command:], words[:command])
    if code:
        return code
    if name == "ncu":
        print('==PROF== Profiling "kernel" - 0: 0%....50%....100% - 9 passes')
        content = (HERE / "capture.ncu-rep").read_bytes()
        Path(target).write_bytes(content[: len(content) // 2] if fault == "truncated" else content)
    else:
        Path(target).write_text("recorded")
    return 0


def served(program: list[str], target: Path) -> int:
    """Profile a server for a while, end it, and write the report."""
    with subprocess.Popen(program, env={**os.environ}) as process:
        print(f"==PROF== Connected to process {process.pid} (python)", flush=True)
        try:
            time.sleep(1)
            print('==PROF== Profiling "kernel": 0%....50%....100% - 9 passes', flush=True)
            time.sleep(1)
        finally:
            process.kill()
    shutil.copyfile(HERE / "capture.ncu-rep", target)
    return 0


def session(verb: str, words: list[str], fault: str) -> int:
    """Keep sessions as directories; one that records has a file with its report and the time."""
    options = dict(w.removeprefix("--").partition("=")[::2] for w in words if w.startswith("--"))
    folder = HERE / "sessions" / (options.get("session") or options["session-new"])
    records = folder / "records"
    if verb == "launch":
        folder.mkdir(parents=True)
        code = launch(words[next(i for i, w in enumerate(words) if not w.startswith("-")) :], [])
        if not records.exists():
            shutil.rmtree(folder, ignore_errors=True)
        return code
    if not folder.is_dir() or fault == f"session-{verb}":
        print(f"The session {folder.name} does not exist.", file=sys.stderr)
        return 1
    if verb == "start":
        records.write_text(f"{options['output']}\n{time.time_ns()}")
    elif verb in ("stop", "cancel") and not records.exists():
        print("No collection is active.", file=sys.stderr)
        return 1
    elif verb == "stop":
        target, at = records.read_text().split("\n")
        Path(target).write_text(f"recorded {at}")
        records.unlink()
    elif verb == "cancel":
        records.unlink()
    elif options.get("kill") == "none":
        shutil.rmtree(folder)
    return 0


def move(database: str, started_ns: int) -> None:
    """Let a recorded timeline begin at another time."""
    import sqlite3

    with sqlite3.connect(database) as con:
        con.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?", [started_ns])
    con.close()


def launch(program: list[str], options: list[str]) -> int:
    """Run a program to its end, or until the duration of nsys, which its report does not mind."""
    limits = [float(w.partition("=")[2]) for w in options if w.startswith("--duration=")]
    with subprocess.Popen(program) as process:
        try:
            return process.wait(*limits)
        except subprocess.TimeoutExpired:
            process.terminate()
            return 0


def guided(fault: str, target: Path) -> int:
    """Profile kernels one by one, as a guided launch sees it; what happens then is the fault."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # `timeout` sends it twice
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    child = subprocess.Popen(["sleep", "300"])
    (HERE / "child").write_text(str(child.pid))
    write = partial(shutil.copyfile, HERE / "capture.ncu-rep", target)
    while b"PERFPIPE_NCU_LAUNCH" not in Path(f"/proc/{child.pid}/environ").read_bytes():
        time.sleep(0.01)  # the program is running when ncu says so
    print(f"==PROF== Connected to process {child.pid} (/usr/bin/sleep)", flush=True)
    attempt = (HERE / "ncu.log").read_text().count("--filter-mode")
    try:
        # The interrupt comes as soon as the last one is read.
        for kernel in range(2 if fault in ("ncu-endless", "ncu-fragile") else 1):
            print(f'==PROF== Profiling "kernel{kernel}": 0%....50%....100% - 9 passes', flush=True)
        match fault:
            case "ncu-late-crash":
                write()
                os.kill(os.getpid(), signal.SIGSEGV)
            case "ncu-crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "ncu-stuck":
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        if fault != "ncu-fragile" or attempt == 1:
            time.sleep(300)
    except KeyboardInterrupt:
        if fault == "ncu-fragile":
            os.kill(os.getpid(), signal.SIGSEGV)
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
