"""The workload programs themselves, on the CPU: Triton kernels run in its interpreter."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from forks import CLIENT, asked, forking, listening

FOLDER = ROOT / "workloads"
TILES = ["--block-m", "32", "--block-n", "32", "--block-k", "32"]
SMALL = ["--batch", "2", "--length", "16", "--width", "32", "--heads", "2", "--layers", "1",
         "--vocabulary", "64"]  # fmt: skip
ATTENTION = ["--batch", "1", "--heads", "2", "--length", "50", "--dim", "16", "--block-m", "32",
             "--block-n", "32"]  # fmt: skip


#: What our programs import beyond PyTorch, and what that imports when it is used.
MODULES = ["torch._dynamo", "torch.profiler", "triton.language", "triton.experimental.gluon"]

ENVIRONMENT = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
Finished = tuple[int, list[dict[str, Any]], str]


@pytest.fixture(scope="module")
def started(needs_torch: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where an interpreter answers that has begun with `import torch`: see forks.py."""
    place = tmp_path_factory.mktemp("torch") / "socket"
    with forking(place, "torch", cwd=FOLDER, env=ENVIRONMENT):
        yield place


@pytest.fixture(scope="module")
def forks(started: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where one answers that has imported MODULES too."""
    place = tmp_path_factory.mktemp("all") / "socket"
    with listening(str(place)) as given:
        grown = asked(str(started), {"modules": MODULES}, [given.fileno()])
    with grown:
        yield place


def _fork(
    server: Path, words: Sequence[str], env: dict[str, str], folder: Path
) -> tuple[int, str, str]:
    """Run a program in a fork, and return its exit code, its output and its errors."""
    out, err = folder / "out", folder / "err"
    with out.open("wb") as to, err.open("wb") as errors:
        given = [to.fileno(), errors.fileno()]
        with asked(str(server), {"words": words, "env": env}, given) as connection:
            code = int(connection.recv(64))
    return code, out.read_text(), err.read_text()


@pytest.fixture
def run(forks: Path, tmp_path: Path) -> Callable[..., Finished]:
    """Run a program in a fork, and return its exit code, its messages and its errors."""

    def finish(program: str, *options: str, **env: str) -> Finished:
        words = [program, *(("--warmup", "1", "--iterations", "3") if options else ()), *options]
        code, out, err = _fork(forks, words, env, tmp_path)
        return code, messages_of(out), err

    return finish


def messages_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def said(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message for message in messages if message["perfpipe"] == kind]


GOOD = [
    *[
        ("gemm.py", "--m", "96", "--n", "80", "--k", "64", "--dtype", dtype)
        for dtype in ("fp16", "bf16", "tf32", "fp32", "fp64", "fp8")
    ],
    ("gemm.py", "--m", "96", "--n", "80", "--k", "64", "--backend", "triton"),
    ("batched_gemm.py", "--batch", "5", "--m", "33", "--n", "40", "--k", "20"),
    ("batched_gemm.py", "--batch", "5", "--m", "33", "--n", "40", "--k", "20", "--mode", "loop"),
    ("fused_matmul.py", "--m", "70", "--n", "60", "--k", "40", *TILES),
    ("fused_matmul.py", "--m", "70", "--n", "60", "--k", "40", *TILES, "--group-m", "1"),
    ("fused_matmul.py", "--m", "70", "--n", "60", "--k", "40", *TILES, "--mode", "unfused"),
    ("vector_add.py", "--n", "5000"),
    ("vector_add.py", "--n", "5000", "--backend", "torch"),
    *[("softmax.py", "--m", "20", "--n", "100", "--backend", b) for b in ("triton", "unfused")],
    ("layernorm.py", "--m", "20", "--n", "100"),
    *[("reduction.py", "--n", "20000", "--mode", mode) for mode in ("two_pass", "atomic", "torch")],
    *[
        ("gather.py", "--table", "100", "--rows", "50", "--width", "24", "--order", order)
        for order in ("sequential", "random", "strided")
    ],
    ("attention.py", *ATTENTION),
    ("attention.py", *ATTENTION, "--causal"),
    ("attention.py", *ATTENTION, "--causal", "--backend", "unfused"),
    *[
        ("transformer_step.py", *SMALL, "--mode", mode)
        for mode in ("eager", "graph", "sync", "copies")
    ],
]


@pytest.mark.parametrize("words", GOOD, ids=lambda words: " ".join(words))
def test_the_result_is_right_and_timed(
    words: tuple[str, ...], run: Callable[..., Finished]
) -> None:
    code, messages, errors = run(*words)
    assert code == 0, errors
    (validation,) = said(messages, "validation")
    assert validation["ok"] is True
    assert validation["rel_l2_error"] < 0.01
    (timing,) = said(messages, "time")
    assert len(timing["ms"]) == 3
    assert all(ms > 0 for ms in timing["ms"])
    assert messages.index(validation) < messages.index(timing)


@pytest.mark.parametrize(
    "words",
    [
        ("fused_matmul.py", "--m", "64", "--n", "64", "--k", "128", *TILES, "--skip-tail"),
        ("fused_matmul.py", "--m", "64", "--n", "64", "--k", "4096", *TILES, "--sum", "fp16",
         "--atol", "0.002"),
        ("gemm.py", "--m", "64", "--n", "64", "--k", "512", "--atol", "0", "--rtol", "0"),
    ],
    ids=["skips work", "sums in half precision", "no tolerance"],
)  # fmt: skip
def test_a_wrong_result_is_told_and_not_timed(
    words: tuple[str, ...], run: Callable[..., Finished]
) -> None:
    code, messages, _ = run(*words)
    assert code == 3
    (validation,) = said(messages, "validation")
    assert validation["ok"] is False
    assert validation["max_abs_error"] > 0
    assert not said(messages, "time")


def test_under_a_profiler_nothing_is_timed_or_checked_again(run: Callable[..., Finished]) -> None:
    code, messages, errors = run("vector_add.py", "--n", "5000", PERFPIPE_COLLECTOR="nsys")
    assert code == 0, errors
    assert not said(messages, "time")
    assert not said(messages, "validation")


def test_a_type_that_the_interpreter_lacks_is_refused(run: Callable[..., Finished]) -> None:
    code, _, errors = run("gemm.py", "--m", "32", "--n", "32", "--k", "32", "--dtype", "bf16",
                          "--backend", "triton")  # fmt: skip
    assert code == 1
    assert "does not multiply bf16" in errors


def test_data_parallel_training_over_two_processes(forks: Path, tmp_path: Path) -> None:
    """The launcher starts ranks as processes of their own, here again in forks."""
    python = tmp_path / "python"
    python.write_text(CLIENT.format(python=sys.executable, address=str(forks)))
    python.chmod(0o755)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             "ddp_step.py", *SMALL, "--dtype", "fp32", "--warmup", "1", "--iterations", "2"]  # fmt: skip
    code, out, errors = _fork(forks, words, {"PYTHON_EXEC": str(python)}, tmp_path)
    messages = messages_of(out)
    assert code == 0, errors
    assert {message["rank"] for message in said(messages, "validation")} == {0, 1}
    assert all(message["ok"] for message in said(messages, "validation"))
    (timing,) = said(messages, "time")
    assert len(timing["ms"]) == 2


#: Programs that know nothing of perfpipe, and take no options.
FOREIGN = {"jax_train", "slow_loader", "slow_logging", "vision_train"}
OURS = sorted(path for path in FOLDER.glob("*.yaml") if path.stem not in FOREIGN)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_every_workload_gives_its_program_known_options(
    path: Any, started: Path, tmp_path: Path
) -> None:
    """Each command is parsed by the program itself, up to the help that --help prints.

    Here each imports what it needs beyond PyTorch, as it does for users.
    """
    from perfpipe.pipelines.plan import planned_tasks
    from perfpipe.pipelines.workload import load_workload

    task = planned_tasks(load_workload(path), path)[0]
    program = next(word for word in task.command if word.endswith(".py"))
    options = [word for word in task.command if word.startswith("--")]
    code, out, errors = _fork(started, [program, "--help"], {}, tmp_path)
    launcher = {"--standalone", "--nproc-per-node"}
    assert code == 0, errors
    assert not {o for o in options if o not in out} - launcher
    assert yaml.safe_load(path.read_text())["description"]
