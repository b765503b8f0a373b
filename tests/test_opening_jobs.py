"""The first screen of a distributed job: who waits for whom, on one configuration, at one length."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli, Opened

from perfpipe.analysis.report.ranks import Place, names_of

Pages = Callable[..., Path]

ONE_FILE = ("nsys/ddp_single.sqlite",)
FILE_A_RANK = ("nsys/ddp_comm_rank0.sqlite", "nsys/ddp_comm_rank1.sqlite")
STRAGGLER = ("nsys/ddp_straggler_rank0.sqlite", "nsys/ddp_straggler_rank1.sqlite")


def _document(folder: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def _title(folder: Path) -> str:
    (title,) = re.findall(
        r'<strong class="view">(.*?)</strong>', (folder / "report.html").read_text()
    )
    return str(title)


def test_a_rank_waits_for_the_one_whose_host_is_slow(pages: Pages) -> None:
    opening = _document(pages("ddp_step"))["opening"]
    said = re.fullmatch(
        r"A step takes 30\.1 ms; GPU 1 waits (.+) ms of it for rank 0, "
        r"whose host launches too slowly",
        opening["verdict"]["text"],
    )
    assert said and 13 < float(said[1]) < 16
    first, *others = opening["actions"]
    assert first["what"] == "Launch the step as a CUDA graph, or compile it"
    said = first["evidence"]
    assert "GPU 0 is launch-bound" in said and "GPU 1 waits for rank 0 in collectives. " in said
    # One advice is enough, and the subject names the configuration.
    assert not any("rank 0" in other["evidence"] for other in others)
    assert not any("slow_rank" in action["evidence"] for action in opening["actions"])


def test_a_screen_is_about_one_configuration(pages: Pages) -> None:
    document = _document(pages("ddp_step"))
    opening = document["opening"]
    assert (
        "shown: slow_rank=-1, slower of 2 configurations (other: slow_rank=1, 27.4 ms)"
        in (opening["subject"]["text"])
    )
    own = {*opening["verdict"]["source"]["reports"]}
    assert len(own) == 1
    shown = [*opening["budgets"], *opening["actions"]]
    assert len(shown) > 4 and all({*part["source"]["reports"]} == own for part in shown)
    # Findings on the other one are further down.
    assert any({*finding["source"]["reports"]} != own for finding in document["findings"])


def test_the_time_of_a_step_is_the_same_everywhere(pages: Pages) -> None:
    folder = pages("ddp_step")
    opening = _document(folder)["opening"]
    tile = opening["tiles"][0]
    assert tile["number"] == "30.1 ms" and tile["note"].endswith("39.4 ms when traced")
    assert _title(folder) == "Median step: 30.1 ms, 39.4 ms under nsys (drawn: iteration 5)"
    folder = pages(*FILE_A_RANK)
    opening = _document(folder)["opening"]
    assert opening["verdict"]["text"].startswith("A step takes 12 ms; ")
    assert opening["tiles"][0]["number"] == "12 ms"
    assert _title(folder).startswith("Median step: 12 ms under nsys (drawn: ")


@pytest.mark.parametrize("names", [ONE_FILE, FILE_A_RANK])
def test_a_job_looks_alike_in_one_file_and_in_a_file_of_each_rank(
    names: tuple[str, ...], pages: Pages
) -> None:
    folder = pages(*names)
    opening = _document(folder)["opening"]
    assert opening["verdict"]["text"] == (
        "A step takes 12 ms; on both GPUs, 37 % of it is AllReduce that no kernel overlaps, and "
        "61 % is compute"
    )
    computing = opening["tiles"][1]
    assert (computing["name"], computing["number"]) == ("Computing", "61 %")
    assert computing["note"].startswith("communication: 37 % exposed, 57 % in total; ")
    assert [budget["name"] for budget in opening["budgets"]] == ["GPU 0", "GPU 1"]
    orders = {tuple(name for name, _ in budget["shares"][:3]) for budget in opening["budgets"]}
    assert len(orders) == 1, "bars of a job are stacked in one order"
    page = (folder / "report.html").read_text()
    drawn = page[page.index('<figure class="step"') : page.index("</figure>")]
    assert [drawn.count(f'font-weight="600">{name}</text>') for name in ("GPU 0", "GPU 1")] == [
        1,
        1,
    ]
    assert "exposed communication 36.8 %" in page


def test_the_cause_of_a_late_rank_is_its_own(pages: Pages) -> None:
    said = _document(pages(*STRAGGLER))["opening"]["verdict"]["text"]
    assert re.fullmatch(
        r"A step takes 28\.5 ms; GPU 0 waits 1\d\.\d ms of it for rank 1, "
        r"which computes for longer",
        said,
    )


@pytest.mark.parametrize("names", [FILE_A_RANK, STRAGGLER])
def test_waiting_counts_only_where_no_other_kernel_runs(
    names: tuple[str, ...], opened: Opened
) -> None:
    """Against each wait by itself, from which all other kernels of the GPU are cut."""
    with opened(*names) as con:
        waits = con.execute("""
            SELECT p.rank, p.report_id, p.start_ns, p.end_ns - c.transfer_ns
            FROM _paired AS p JOIN paired_collectives AS c
                ON c.job = p.job AND c.operation = p.operation AND c.nth = p.nth
                    AND c.communicator IS NOT DISTINCT FROM p.communicator
        """).fetchall()
        kernels = con.execute(
            "SELECT report_id, start_ns, end_ns FROM kernels WHERE name NOT LIKE 'nccl%'"
            " ORDER BY start_ns"
        ).fetchall()
        found = dict(con.execute("SELECT rank, waiting_ns FROM _exposed_waits").fetchall())
    expected = dict.fromkeys(found, 0)
    for rank, report, start, until in waits:
        at = start
        for _, begins, ends in (kernel for kernel in kernels if kernel[0] == report):
            if at < until and ends > at and begins < until:
                expected[rank] += max(0, begins - at)
                at = max(at, ends)
        expected[rank] += max(0, until - at)
    assert len(found) == 2 and found == expected


def test_other_ranks_are_not_blamed_where_all_wait(cli: Cli) -> None:
    """Rank 0 is last in most collectives, and waits longest in the others."""
    paths = [DATA / "torch" / f"symm_rank{rank}.kineto.json.gz" for rank in (0, 1)]
    assert cli("report", *paths) == 0, cli.err
    said = " ".join(cli.out.split())
    assert "on both GPUs, 32 to 36 % of it is communication that no kernel overlaps" in said


def test_names_of_gpus() -> None:
    def names(*places: tuple[str, int, str | None, int]) -> list[str]:
        return names_of([Place(file, gpu, file, job, rank) for file, gpu, job, rank in places])

    assert names(("a", 0, None, 0), ("a", 1, None, 1)) == ["GPU 0", "GPU 1"]
    assert names(("a", 0, "j", 0), ("b", 1, "j", 1)) == ["GPU 0", "GPU 1"]
    # Nodes number their GPUs alike.
    assert names(("a", 0, "j", 0), ("b", 0, "j", 1)) == ["rank 0, GPU 0", "rank 1, GPU 0"]
    assert names(("a", 0, "j", 0), ("b", 0, "k", 0)) == ["a, GPU 0", "b, GPU 0"]
    assert names(("a", 0, "j", 0), ("b", 1, None, 0)) == ["a, GPU 0", "b, GPU 1"]
