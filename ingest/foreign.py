"""Names files that perfpipe does not read, and says what to give instead.

The patterns are tried in order on the beginning of a file.
"""

from __future__ import annotations

import re
from pathlib import Path

from perfpipe.ingest.ncu.faults import failure_of

_CSV_PAGE = "ncu --import REPORT --csv --page raw"
_SQLITE = "nsys export --type sqlite REPORT.nsys-rep"
TORCH = "trace of torch.profiler (export_chrome_trace)"
NSYS = (
    "profile the program with nsys (nsys profile -t cuda,nvtx), or with 'perfpipe run -- PROGRAM'"
)

#: What a file is, by how its first bytes look.
_BINARY = (
    (rb"PAR1|ARROW1", "a single table of an export; give the whole directory instead"),
    (rb"PK\x03\x04|.{257}ustar", "an archive; unpack it and give its files"),
    (
        rb"\x80[\x02-\x05].",
        "a Python pickle, but neither a memory snapshot nor a flight recorder dump of PyTorch; "
        f"give one of them, or the {TORCH}",
    ),
)

#: What a text is, by a pattern in it.
_TEXTS = (
    (
        rb"(?m)\A(?:#.*\n|\s)*version: 1\b[\s\S]*^command:",
        "a workload file of perfpipe; 'perfpipe run' runs it",
    ),
    (
        rb"\Aversion https://git-lfs\.github\.com/spec/",
        "a Git LFS pointer instead of the file; run 'git lfs pull'",
    ),
    (
        rb"(?m)^[^\w\r\n]{0,8}ID\W{1,3}Process ID\b",
        "an ncu CSV that was saved again by another program with different separators or quotes; "
        f"export it with '{_CSV_PAGE}'",
    ),
    (
        rb'"Kernel Name",.*"Minimum","Maximum"',
        "ncu's summary over launches; export it without --print-summary",
    ),
    (
        rb'(?m)^"(ID|Kernel Name)",.*"(Kernel|Metric) Name"',
        "an ncu CSV from which another program removed columns such as Process ID; "
        f"export it with '{_CSV_PAGE}'",
    ),
    (
        rb'(?m)^"?Time ?\(%\)"?,|^"?(Start|Duration|Timestamp) \(ns\)"?,|"Time ?\(%\)" ?:'
        rb"|^ ?\*\* .*\(\w+\):|^Processing \[.*\] with \[",
        "output of 'nsys stats', whose sums cannot be taken apart again; give the .nsys-rep, or "
        f"the SQLite file that nsys stats wrote next to it ('{_SQLITE}')",
    ),
    (
        rb'(?s)\A\s*\{.{0,2000}"(CudaEvent|NvtxEvent|TraceProcessEvent|StringTable)"'
        rb'|\A\s*\{\s*"Type" ?: ?-?\d+',
        f"an nsys export of type jsonlines; export it with '{_SQLITE}'",
    ),
    (
        rb'(?s)\A\s*\{.{0,2000}"schema" ?: ?"\d[\w.-]*"',
        f"an execution trace of PyTorch, which has no GPU times; give the {TORCH}",
    ),
    (
        rb'(?s)\A\s*\{.{0,2000}"rocprofiler-sdk-tool"'
        rb'|\A"?Name"?,"?Calls"?,"?TotalDurationNs|\A"?Kernel_Name"?,',
        f"output of AMD's rocprof; record the program with torch.profiler, and give the {TORCH}",
    ),
    (
        rb'(?s)\A\s*\{.{0,4000}"request_throughput" ?: ?\{\s*"unit"',
        "AIPerf's statistics, without the requests; give profile_export.jsonl, next to it "
        "(--export-level records)",
    ),
    (
        rb"\A\s*\[\s*\[\s*-?\d",
        "a memory timeline of torch.profiler, which has no kernels; record with "
        f"profile_memory=True, and give the {TORCH}",
    ),
    (
        rb"(?m)^==\d+== (NVPROF|Profiling result)|^==\d+==.*nvprof",
        "output of nvprof, which nsys and ncu replace; profile the program with 'nsys profile', "
        "'ncu', or 'perfpipe run -- PROGRAM'",
    ),
    (rb"(?i)\A\s*<(!doctype|html)", f"a web page; give the report that it shows, or the {TORCH}"),
)

#: What a file is by its name.
_NAMES = {
    ".xplane.pb": f"a profile of JAX (XLA); {NSYS}",
    ".pftrace": f"a Perfetto trace; give the report that it was made from, or the {TORCH}",
}

#: The head of a section on ncu's text pages.
_SECTION = re.compile(
    rb"(?m)^\s*Section: (?:GPU Speed Of Light|Command line profiler metrics|Launch Statistics)"
)


def what_else(path: Path, text: bytes) -> str:
    """Return what a file that is no report is, with a remedy; `text` is its beginning."""
    name = path.name.removesuffix(".xz").removesuffix(".gz")
    if name.endswith(".qdstrm"):
        return (
            f"raw nsys data that was never imported; run 'QdstrmImporter -i {name}' "
            "(nsys usually fails to do this because libdw.so.1 is missing)"
        )
    for pattern, sentence in _BINARY:
        if re.match(pattern, text, re.DOTALL):
            return sentence
    for ending, sentence in _NAMES.items():
        if name.endswith(ending):
            return sentence
    for pattern, sentence in _TEXTS:
        if re.search(pattern, text):
            return sentence
    return f"not a report that perfpipe reads ({_looks_like(text)})"


def _looks_like(text: bytes) -> str:
    if b"\0" in text[:4096]:
        return "unknown binary data"
    if _SECTION.search(text):
        return f"a text page of ncu; export it with '{_CSV_PAGE}'"
    if b"==PROF== " in text or b"==ERROR== " in text or b"==WARNING== " in text:
        failure = failure_of(text.decode(errors="replace"))
        return failure or "output of ncu without a CSV table: add --csv --page raw"
    return "JSON" if text.lstrip()[:1] in (b"{", b"[") else "text without an ncu CSV header"
