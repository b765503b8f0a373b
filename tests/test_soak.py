"""The parts of `make soak` do their work, and say what is wrong."""

from __future__ import annotations

from pathlib import Path

import flat
import pytest
import soak


def test_growth_is_found() -> None:
    steady = [flat.Used(200 + number % 3, 12) for number in range(30)]
    assert flat.growth(steady) == []
    leaking = [flat.Used(200 + 2 * number, 12) for number in range(30)]
    assert flat.growth(leaking) == ["memory grew from 209 to 249 MiB"]
    opening = [flat.Used(200, 12 + number // 10) for number in range(30)]
    assert flat.growth(opening) == ["open files grew from 12 to 14"]


def test_the_own_files_and_memory_are_seen(tmp_path: Path) -> None:
    before = flat.used()
    with (tmp_path / "file").open("w"):
        assert flat.used().files == before.files + 1
    assert before.memory > 1


@pytest.mark.parametrize(("code", "end"), [(0, "nothing wrong"), (1, "WRONG")])
def test_the_summary_says_which_part_failed(
    code: int, end: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = f"import sys; print(sys.argv[1:]); sys.exit({code})"
    monkeypatch.setattr(soak, "PARTS", (soak.Part("one", 1, ("-c", program)),))
    assert soak.main(["--seconds", "7", "--seed", "3"]) == code
    out = capfd.readouterr().out
    assert "['--seconds', '7', '--seed', '3']" in out
    assert f"one: {end} in" in out
    assert "seed 3:" in out


def test_a_part_that_is_gone_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "PARTS", (soak.Part("one", 1, ("gone.py",)),))
    assert soak.main(["--seconds", "1"]) == 1
