"""Reports on inputs of every kind met in public files: see tests/data/field/README.md."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli

FIELD = DATA / "field"

#: The first file of each kind, which is the number that its name begins with.
KINDS = {
    f"{path.parent.name}/{path.name[:2]}": path
    for path in sorted(FIELD.glob("n*/*"), key=lambda path: path.name, reverse=True)
}


@pytest.fixture
def report_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build the report of a store once: what is tried is every output of it."""
    from perfpipe.pipelines import reporting

    make: Callable[..., Any] = reporting.make_report
    built: list[Any] = []

    def make_once(*arguments: Any, **options: Any) -> Any:
        if not built:
            built.append(make(*arguments, **options))
        return built[0]

    monkeypatch.setattr(reporting, "make_report", make_once)


@pytest.mark.usefixtures("report_once")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_input_gives_a_page_or_a_sentence(
    kind: str, cli: Cli, tmp_path: Path
) -> None:
    code = cli("ingest", KINDS[kind])
    if code:
        refusals = [line for line in cli.err.splitlines() if line.startswith("perfpipe: ")]
        assert code == 2
        assert str(KINDS[kind]) in refusals[0]
        return
    assert cli("report", "--html", "--md", "--json", "report.json") == 0, cli.err
    assert "</html>" in (tmp_path / "report.html").read_text()
    assert "## Provenance" in (tmp_path / "report.md").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["schema_version"] == 1
    for words in (("report",), ("report", "--all")):
        assert cli(*words) == 0, cli.err
        assert cli.out


def test_migrations_within_a_kernel_are_named(cli: Cli) -> None:
    assert cli("report", FIELD / "nsys" / "28_unified_memory.sqlite.xz") == 0, cli.err
    said = " ".join(cli.out.split())
    assert (
        "the GPU is busy for 100 % of that time; kernels that may wait for pages of unified memory "
        "take 100 % of that time (3,000 migrations, 393.2 MB)"
    ) in said
    assert "normalization" not in said.partition("GPU time")[0]
    assert "3,000 migrations of 393.2 MB to the GPU, with 1 kernel launch of 900 ms" in said
    assert "migration 2 %" in said


def test_uneven_steps_have_their_median_and_their_mean(cli: Cli) -> None:
    assert cli("report", FIELD / "nsys" / "30_skewed.json.gz") == 0, cli.err
    assert (
        "A step takes 150 ms (median; 350 ms on average), and the GPU is busy for 90 % of a median "
        "step and 39 % of all steady steps"
    ) in " ".join(cli.out.split())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("21_graphlost.json.gz", "- Steps: 3 of 3 are steady, found by torch.profiler's steps\n"),
        # One forward pass of 36 layers: the layers are not steps.
        (
            "18b_vllm_one.json.gz",
            "- Steps: 1 of 1 is steady, found by NVTX ranges\n",
        ),
        (
            "18c_sglang_one.json.gz",
            "- Steps: 1 of 1 is steady, found by NVTX ranges\n",
        ),
        ("36_ranges_without_repeats.sqlite.xz", "- Steps: 1 of 1 is steady, found by NVTX ranges"),
        # The first kernel of the only step comes after 60 ms.
        ("24_onestep.json.gz", "A step takes 70 ms, and the GPU is busy for 11 % of that time"),
    ],
)
def test_steps_from_ranges_without_repeats_of_launches(
    name: str, said: str, cli: Cli, tmp_path: Path
) -> None:
    assert cli("report", FIELD / "nsys" / name, "--md", "report.md") == 0, cli.err
    assert said in (tmp_path / "report.md").read_text()


def test_a_trace_that_does_not_say_which_gpu(cli: Cli, tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((FIELD / "nsys" / "20_lostfirst.json.gz").read_bytes()))
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    for event in kernels[::2]:
        event["args"]["device"] = "x"
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    assert cli("report", path, "--html", "--md", "report.md") == 0, cli.err
    assert "GPU None" not in (tmp_path / "report.md").read_text()
    assert "an unknown GPU" in (tmp_path / "report.md").read_text()
