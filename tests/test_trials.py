"""Trials in a store: the table, damaged files, secrets, and the commands of the store."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli

from perfpipe.analysis.session import Session
from perfpipe.owner import own_name
from perfpipe.prune import collect_garbage
from perfpipe.store import Store
from perfpipe.trialrecord import Gained, LeverTrial, Trial, read_all, read_file, write
from perfpipe.verify import verify

TRIALS = DATA / "trials"
LORA, CIFAR = "lora-20261120-103107", "cifar-20261121-081500"


@pytest.fixture
def tried(store: Store) -> Store:
    """A store with two trials."""
    shutil.copytree(TRIALS, store.trials_dir)
    return store


def _rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with Session.open(store) as session:
        return session.execute(sql).fetchall()
    raise AssertionError("unreachable")


def test_each_lever_and_the_stack_are_a_row(tried: Store) -> None:
    rows = _rows(
        tried,
        "SELECT kind, lever, gain_pct, low_pct, high_pct, verdict, results, launches FROM trials "
        f"WHERE trial_id = '{LORA}' AND verdict IN ('gain', 'not tried') AND results != 'differ'",
    )
    assert rows == [
        ("lever", "compile", 38.4, 36.9, 39.8, "gain", "within_tolerance", 4),
        ("lever", "bf16", 23.9, 22.0, 25.7, "gain", "within_tolerance", 4),
        ("lever", "fused_optimizer", None, None, None, "not tried", "unknown", 0),
        ("stack", "bf16 + compile", 52.1, 50.0, 54.0, "gain", "within_tolerance", 6),
    ]


def test_the_trial_is_in_every_row(tried: Store) -> None:
    rows = _rows(
        tried,
        "SELECT DISTINCT program, run_id, gpu, tried_at, unit, plain_ms, aa_gain_pct, aa_results, "
        f"command, reports FROM trials WHERE trial_id = '{CIFAR}'",
    )
    assert rows == [
        ("cifar", "cifar-20261121-080102", "NVIDIA H200", "2026-11-21T08:15:00Z", "launch",
         61240.0, -0.4, "differ", ["python", "-m", "cifar.train"], []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bound", "low", "exceeded"),
    [(68.2, 73.8, True), (73.8, 73.8, False), (80.0, 73.8, False), (None, 73.8, None),
     (68.2, None, None)],
)  # fmt: skip
def test_a_bound_is_exceeded_by_the_low_end(
    bound: float | None, low: float | None, exceeded: bool | None, store: Store
) -> None:
    gained = Gained(75.0, low, 99.0) if low is not None else Gained(75.0)
    lever = LeverTrial("workers", "", "gain", gained, bound_pct=bound, launches=2)
    write(store.root, replace(read_file(TRIALS / f"{CIFAR}.json"), levers=(lever,)))
    assert _rows(store, "SELECT exceeds_bound FROM trials") == [(exceeded,)]


@pytest.mark.parametrize(("low", "exceeded"), [(60.0, False), (70.0, True)])
def test_a_bound_on_steps_is_compared_with_steps(low: float, exceeded: bool, store: Store) -> None:
    """An epoch can gain more than its steps: validation and first batches wait as well."""
    gained, in_steps = Gained(75.0, 73.8, 76.0), Gained(low + 2, low, low + 4)
    lever = LeverTrial("workers", "", "gain", gained, in_steps, bound_pct=68.2, launches=2)
    write(store.root, replace(read_file(TRIALS / f"{CIFAR}.json"), levers=(lever,)))
    sql = "SELECT exceeds_bound, gain_pct, steps_gain_pct, steps_low_pct FROM trials"
    assert _rows(store, sql) == [(exceeded, 75.0, low + 2, low)]


def test_what_is_written_is_read(store: Store) -> None:
    trials = [read_file(path) for path in TRIALS.iterdir()]
    for trial in trials:
        write(store.root, trial)
    assert sorted(trials, key=lambda trial: trial.at) == read_all(store.root) == store.trials()


def test_secrets_are_hidden(store: Store) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwx"
    lever = LeverTrial(
        "own", "", "failed", why=f"no access with {secret}", manual=f"export HF_TOKEN={secret}",
        applied=(f"token={secret}",), results_why=f"{secret} differs",
    )  # fmt: skip
    own = replace(
        read_file(TRIALS / f"{LORA}.json"),
        words=("train.py", "--token", secret), levers=(lever,), notes=(f"uses {secret}",),
    )  # fmt: skip
    assert secret not in write(store.root, own).read_text()


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ("{", "cannot read the trial"),
        ("[]", "not a JSON object"),
        ('{"schema_version": 99}', "schema version 99"),
        ('{"schema_version": 1, "trial_id": "x"}', "not a complete trial"),
    ],
)
def test_a_damaged_trial_is_skipped_and_found(
    damage: str, fault: str, tried: Store, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    (tried.trials_dir / f"{LORA}.json").write_text(damage)
    assert {trial.trial_id for trial in tried.trials()} == {CIFAR}
    assert f"trial {LORA} is skipped" in caplog.text and fault in caplog.text
    assert [f for name, f in verify(tried) if name == f"trial {LORA}" and f and fault in f]
    assert cli("query", "SELECT DISTINCT trial_id FROM trials", "--format", "csv") == 0
    assert CIFAR in cli.out and LORA not in cli.out
    assert cli("store", "verify") == 2
    assert f"trial {LORA}: " in cli.out


def test_a_trial_under_another_name_is_refused(tried: Store) -> None:
    content = json.loads((tried.trials_dir / f"{LORA}.json").read_text())
    for name in ("../escape", CIFAR, ""):
        (tried.trials_dir / f"{LORA}.json").write_text(json.dumps({**content, "trial_id": name}))
        assert [trial.trial_id for trial in tried.trials()] == [CIFAR]


def test_a_store_of_trials_alone_is_listed_verified_and_emptied(tried: Store, cli: Cli) -> None:
    assert cli("store", "verify") == 0
    assert "2 intact, 0 damaged" in cli.out
    assert cli("store", "ls") == 0
    assert cli.out.splitlines() == [
        f"{LORA}  trial  5 levers  lora", f"{CIFAR}  trial  2 levers  cifar",
    ]  # fmt: skip
    assert cli("store", "ls", "--json") == 0
    assert [one["trial_id"] for one in json.loads(cli.out)["trials"]] == [LORA, CIFAR]
    assert cli("store", "rm", LORA) == 0
    assert cli("store", "ls") == 0 and LORA not in cli.out
    assert cli("store", "rm", LORA) == 2
    assert cli("store", "rm", f"../trials/{CIFAR}") == 2
    assert cli("store", "compact") == 0 and cli("store", "gc") == 0
    assert [trial.trial_id for trial in tried.trials()] == [CIFAR]


def test_what_a_killed_writer_left_is_no_trial_and_is_collected(
    tried: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tried.trials_dir / own_name(".tmp")
    left.write_text("{")
    assert len(tried.trials()) == 2
    monkeypatch.setattr("perfpipe.sweeping.has_ended", lambda name: True)
    collect_garbage(tried, 3600)
    assert not left.exists() and len(tried.trials()) == 2


def test_older_trials_without_newer_fields_are_read(tmp_path: Path) -> None:
    content = json.loads((TRIALS / f"{CIFAR}.json").read_text())
    required = {
        *("trial_id", "program", "at", "unit", "plain_ms", "plain_launches"),
        *("aa", "aa_results", "levers"),
    }
    path = tmp_path / f"{CIFAR}.json"
    path.write_text(
        json.dumps({key: content[key] for key in ("schema_version", *sorted(required))})
    )
    assert read_file(path).stack is None
    assert required < {own.name for own in fields(Trial)}
