"""Files of other tools are refused with what they are, and with what to give instead."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.errors import InputError
from perfpipe.ingest.inputs import identify


def _tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("report.sqlite"), io.BytesIO())
    return made.getvalue()


KINDS = {
    "gpukernsum.csv": (
        b"\nTime (%),Total Time (ns),Instances,Avg (ns),Name\n16.1,121020199,60,2017003.3,gemm\n",
        "output of 'nsys stats'",
    ),
    "old_stats.csv": (b"Time(%),Total Time (ns),Num Calls\n1,2,3\n", "output of 'nsys stats'"),
    "trace.csv": (b"Start (ns),Duration (ns),CorrId,GrdX\n1,2,3,4\n", "output of 'nsys stats'"),
    "stats.json": (b'[{"Time (%)": 16.1, "Instances": 60}]', "output of 'nsys stats'"),
    "stats.txt": (
        b"Processing [a.sqlite] with [/opt/cuda_api_sum.py]...\n\n"
        b" ** CUDA API Summary (cuda_api_sum):\n\n Time (%)  Total Time (ns)\n",
        "output of 'nsys stats'",
    ),
    "export.jsonl": (
        b'{"Type":79,"CudaEvent":{"startNs":"140547168","endNs":"140562944"}}\n',
        "an nsys export of type jsonlines; export it with 'nsys export --type sqlite",
    ),
    "et.json": (
        json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}).encode(),
        "an execution trace of PyTorch, which has no GPU times; give the trace of torch.profiler",
    ),
    "et_old.json": (
        json.dumps({"schema": "1.0.1", "pid": 1, "time": "x", "nodes": []}, indent=1).encode(),
        "an execution trace of PyTorch",
    ),
    "908_results.json": (
        b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}',
        "output of AMD's rocprof",
    ),
    "hip_stats.csv": (
        b'"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"k",1,5280,5280,100.0\n',
        "output of AMD's rocprof",
    ),
    "memory_timeline.raw": (b"[[1694000, 0, 1024, 5], [1694001, 1, 1024, 5]]", "a memory timeline"),
    "memory_timeline.json": (b"[[1, 2], [[0, 1], [0, 2]]]", "a memory timeline"),
    "timeline.html": (b"<!DOCTYPE html><html></html>", "a web page"),
    "checkpoint.pickle": (
        pickle.dumps({"weights": [0.5], "step": 3}),
        "a Python pickle, but neither a memory snapshot nor a flight recorder dump of PyTorch",
    ),
    "old.pickle": (pickle.dumps({"weights": [0.5]}, protocol=2), "a Python pickle, but neither"),
    "reports.tar": (_tar(), "an archive; unpack it"),
    "reports.zip": (b"PK\3\4\x14\0\0\0", "an archive; unpack it"),
    "host.xplane.pb": (b"\n\x0c/host:metadata", "a profile of JAX (XLA)"),
    "nvprof.log": (b"==123== NVPROF is profiling process 123\n", "output of nvprof"),
    "own.yaml": (b"# Mine\nversion: 1\nname: a\ncommand: [true]\n", "'perfpipe run' runs it"),
    "notes.txt": (b"nothing\n", "not a report that perfpipe reads (text without an ncu CSV"),
}


@pytest.mark.parametrize("name", KINDS)
def test_files_of_other_tools_are_refused_by_name(name: str, tmp_path: Path) -> None:
    content, sentence = KINDS[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        identify(path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"layer": "segments"}, "not a memory snapshot of PyTorch (no segments)"),
        ({"segments": [], "device_traces": []}, "the snapshot has no segments and no events"),
        (["segments"], "segment 0 is not a dictionary"),
        (
            {"segments": [], "hook": print},
            "the pickle needs builtins.print, and perfpipe reads only",
        ),
    ],
)
def test_a_pickle_that_only_looks_like_a_snapshot_is_refused(
    value: object, sentence: str, tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "own.pickle"
    path.write_bytes(pickle.dumps(value))
    assert identify(path).format == "memory-snapshot"
    assert cli("ingest", path) == 2
    said = [line for line in cli.err.splitlines() if line.startswith("perfpipe: ")]
    assert sentence in said[0] and "own.pickle: " in said[0]
