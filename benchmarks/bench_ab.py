"""Error rates of `perfpipe ab`, measured: whole comparisons of real programs by the command line.

Each comparison calls the command line in this process, on a shell program that prints the next of
a series of times: of an unchanged program, or of one whose arm B is slower.  The series have
several kinds of noise.  Results are appended to a file, so that several processes can share the
work, and the tables are those of all results in it; `--docs` writes them into docs/error-rates.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from bench_gate import NOISES, normal, outliers

from perfpipe.pipelines.cli import run_cli

Series = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Series]

#: Most rounds, launches that are prepared, and the usual time of a launch, ms.
ROUNDS, LAUNCHES, MS = 5, 40, 10.0

#: Marks around the tables in the docs.
BEGIN, END = "<!-- tables of bench_ab.py -->", "<!-- end -->"

#: Reads the next time of its configuration and arm; starts no other program.
PROGRAM = """
cd "$1" || exit 1
read -r at < at
echo $((at + 1)) > at
exec < "${ARM:-a}/$at"
read -r line
echo "$line"
"""

WORKLOAD = """
version: 1
name: series
command: [sh, program.sh, "{n}"]
matrix: {n: [NUMBERS]}
collect: {observe: false}
"""


def period(rng: np.random.Generator, count: int) -> Series:
    """Return noise of 0.5 %, with 5 % more in two of four launches: 0 5 5 0."""
    slow = (np.arange(count) + rng.integers(4)) % 4 // 2
    found: Series = 0.05 * slow + rng.normal(0, 0.005, count)
    return found


def first_launches(rng: np.random.Generator, count: int) -> Series:
    """Return noise of 0.5 %, with first launches of both arms that take 20 % longer."""
    found = rng.normal(0, 0.005, count)
    found[:2] += math.log(1.2)
    return found


def drift(rng: np.random.Generator, count: int) -> Series:
    """Return launches that get 0.3 % slower each."""
    found: Series = 0.003 * np.arange(count) + rng.normal(0, 0.005, count)
    return found


KINDS: dict[str, Noise] = {
    "normal 1 %": normal(0.01),
    "normal 2 %": normal(0.02),
    "heavy tails 1 %": NOISES["heavy tails 1 %"],
    "two modes 3 %, 1/3": NOISES["two modes 3 %, 1/3"],
    "outliers": outliers,
    "drift": drift,
    "period of 4 launches": period,
    "slow first launch": first_launches,
}

#: Cells of the tables: noise, configurations, how many of them are slower, and by how much.
CELLS = [(kind, 1, 1, change) for kind in KINDS for change in (0.0, 0.03)] + [
    ("outliers", 1, 1, 0.1),
    ("normal 1 %", 20, 0, 0.0),
    ("normal 1 %", 20, 1, 0.03),
    ("normal 1 %", 20, 20, 0.03),
]


@dataclass(frozen=True)
class Case:
    """A comparison: noise, configurations, how many are slower, and by how much, a ratio - 1."""

    kind: str
    configurations: int
    slower: int
    change: float

    def measured(self, seed: int) -> dict[str, object]:
        """Compare once, and return what the command decided."""
        rng = np.random.default_rng([seed, *self.kind.encode()])
        here = Path(tempfile.mkdtemp(prefix="bench-ab-", dir=_memory()))
        try:
            numbers = range(self.configurations)
            (here / "program.sh").write_text(PROGRAM)
            text = WORKLOAD.replace("NUMBERS", ", ".join(map(str, numbers)))
            (here / "w.yaml").write_text(text)
            for number in numbers:
                self._prepare(here / str(number), rng, number < self.slower)
            return self._decided(here, seed)
        finally:
            shutil.rmtree(here)

    def _prepare(self, folder: Path, rng: np.random.Generator, slower: bool) -> None:
        logs = KINDS[self.kind](rng, LAUNCHES)
        folder.mkdir()
        (folder / "at").write_text("0\n")
        for arm, change in (("a", 0.0), ("b", self.change if slower else 0.0)):
            (folder / arm).mkdir()
            for at, ms in enumerate(MS * np.exp(logs) * (1 + change)):
                line = json.dumps({"perfpipe": "time", "ms": [float(ms)]})
                (folder / arm / str(at)).write_text(f"{line}\n")

    def _decided(self, here: Path, seed: int) -> dict[str, object]:
        words = ["ab", "w.yaml", "--b", "env.ARM=b", "--rounds", str(ROUNDS)]
        words += ["--json", "found.json", "--store", "store"]
        said = StringIO()
        with chdir(here), redirect_stdout(said), redirect_stderr(said):
            code = run_cli(words)
        if not (here / "found.json").exists():
            raise RuntimeError(said.getvalue())
        found = json.loads((here / "found.json").read_text())
        return {
            **asdict(self),
            "seed": seed,
            "code": code,
            "verdict": found["verdict"],
            "action": found["action"],
            "first_run": bool(found["notes"]),
            "rounds": found["endpoints"][0]["runs"][0],
            "found_pct": found["endpoints"][0]["change_pct"],
        }


def _memory() -> str | None:
    """Return a folder in memory for short-lived files, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def wilson(count: int, of: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z = 1.959964
    share, spread = count / of, z**2 / of
    middle = (share + spread / 2) / (1 + spread)
    margin = z * math.sqrt(share * (1 - share) / of + spread / of / 4) / (1 + spread)
    return max(0.0, middle - margin), min(1.0, middle + margin)


def tables(results: Sequence[dict[str, object]]) -> str:
    """Return the tables of docs/error-rates.md, in Markdown."""
    cells: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for own in results:
        key = (own["kind"], own["configurations"], own["slower"], own["change"])
        cells.setdefault(key, []).append(own)
    heads = ["noise between launches", "n", "false alarms, %", "same, %", "rounds"]
    heads += ["detected, %", "revert advised, %", "rounds if slower"]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for kind in KINDS:
        for change in (0.03, 0.1):
            slow, same = cells.get((kind, 1, 1, change)), cells.get((kind, 1, 1, 0.0))
            if not slow or not same:
                continue
            name = f"{kind}, {100 * change:g} % slower" if change != 0.03 else kind
            counts = f"{len(same)} and {len(slow)}"
            row = [name, counts, _false(same), _share(same, verdict="same"), _rounds(same)]
            row += [_share(slow, verdict="regressed"), _share(slow, action="revert"), _rounds(slow)]
            lines.append(f"| {' | '.join(row)} |")
    unchanged = [own for own in results if own["configurations"] == 1 and not own["change"]]
    unchanged = [own for own in unchanged if own["kind"] in KINDS]
    if unchanged:
        row = ["all unchanged", str(len(unchanged)), _false(unchanged), "", "", "", "", ""]
        lines.append(f"| {' | '.join(row)} |")
    heads = ["20 configurations with 1 % noise", "n", "improved or regressed, %", "same, %"]
    heads += ["revert advised, %"]
    lines += ["", f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for slower, text in ((0, "unchanged"), (1, "one is 3 % slower"), (20, "all are 3 % slower")):
        found = cells.get(("normal 1 %", 20, slower, 0.03 if slower else 0.0))
        if found:
            row = [text, str(len(found)), _false(found), _share(found, verdict="same")]
            lines.append(f"| {' | '.join([*row, _share(found, action='revert')])} |")
    return "\n".join(lines) + "\n"


def _false(own: Sequence[dict[str, object]]) -> str:
    return _interval(sum(one["verdict"] in ("improved", "regressed") for one in own), len(own))


def _share(own: Sequence[dict[str, object]], **wanted: str) -> str:
    ((name, value),) = wanted.items()
    return _interval(sum(one[name] == value for one in own), len(own))


def _interval(count: int, of: int) -> str:
    low, high = wilson(count, of)
    return f"{100 * count / of:.0f} ({100 * low:.1f} to {100 * high:.1f})"


def _rounds(own: Sequence[dict[str, object]]) -> str:
    return f"{np.mean([float(str(one['rounds'])) for one in own]):.1f}"


def _done(file: Path) -> set[tuple[object, ...]]:
    """Return the cells and seeds that a file has already."""
    lines = file.read_text().splitlines() if file.exists() else []
    names = ("kind", "configurations", "slower", "change", "seed")
    return {tuple(json.loads(line)[name] for name in names) for line in lines}


def _with_tables(page: str, text: str) -> str:
    """Return a page with new tables between the marks."""
    before, _, rest = page.partition(f"{BEGIN}\n")
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}{END}{after}"


def main() -> None:
    """Measure comparisons that the file does not have yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="JSON lines to append to; those in it are kept")
    parser.add_argument("--repeats", type=int, default=100, help="comparisons of each case")
    parser.add_argument("--matrices", type=int, default=8, help="those with 20 configurations")
    parser.add_argument("--part", default="0/1", help="I/N: measure every Nth, from the Ith on")
    parser.add_argument("--docs", type=Path, help="page to write the tables into")
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    done = _done(options.file)
    for seed in range(first, options.repeats, step):
        for cell in CELLS:
            case = Case(*cell)
            if (case.configurations > 1 and seed >= options.matrices) or (*cell, seed) in done:
                continue
            found = json.dumps(case.measured(seed))
            with options.file.open("a") as file:
                file.write(f"{found}\n")
    text = tables([json.loads(line) for line in options.file.read_text().splitlines()])
    if options.docs:
        options.docs.write_text(_with_tables(options.docs.read_text(), text))
    print(text, end="")


if __name__ == "__main__":
    main()
