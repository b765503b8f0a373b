"""Logging services and ports of repeated launches."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfpipe.pipelines.trying import services
from perfpipe.pipelines.trying.protecting import Protection

pytestmark = pytest.mark.usefixtures("own_places")


def test_nothing_is_sent_and_later_nothing_downloaded(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with Protection(project, "in-place").launch() as place:
        assert place.env["WANDB_MODE"] == "offline"
        assert place.env["MLFLOW_TRACKING_URI"].startswith("file:")
        assert "HF_HUB_OFFLINE" not in place.env
    with Protection(project, "in-place").launch(offline=True) as place:
        assert place.env["HF_HUB_OFFLINE"] == place.env["TRANSFORMERS_OFFLINE"] == "1"
    with Protection(project, "in-place", network=True).launch(offline=True) as place:
        assert place.env == {}


@pytest.mark.parametrize(
    ("env", "name", "value"),
    [
        ({"WANDB_MODE": "online"}, "WANDB_MODE", "offline"),
        ({"WANDB_MODE": "disabled"}, "WANDB_MODE", None),
        ({"MLFLOW_TRACKING_URI": "https://x"}, "MLFLOW_TRACKING_URI", "file:/runs/mlruns"),
        ({"MLFLOW_TRACKING_URI": "file:/own"}, "MLFLOW_TRACKING_URI", None),
        ({}, "CLEARML_OFFLINE_MODE", "1"),
    ],
)
def test_the_users_quiet_settings_stay(env: dict[str, str], name: str, value: str | None) -> None:
    assert services.quiet(env, Path("/runs"), offline=False).get(name) == value


PORT = {"MASTER_PORT": "5", "PET_MASTER_PORT": "5"}


@pytest.mark.parametrize(
    ("words", "inserted", "env"),
    [
        ("torchrun --nproc-per-node 2 t.py", None, PORT),
        ("/opt/bin/torchrun --nnodes=1 t.py --master_port 3", None, PORT),
        ("python -m torch.distributed.run --nproc-per-node=2 -m pkg", None, PORT),
        ("torchrun --master_port=29501 t.py", None, {}),
        ("torchrun --rdzv-endpoint localhost:0 t.py", None, {}),
        ("torchrun --standalone t.py", None, {}),
        ("torchrun --nnodes 2 t.py", None, {}),
        ("torchrun --nnodes=1:4 t.py", None, {}),
        ("accelerate launch --num_processes 2 t.py", 2, PORT),
        ("python -m accelerate.commands.launch t.py", 3, PORT),
        ("/bin/accelerate-launch t.py", 1, PORT),
        ("accelerate launch --main_process_port 0 t.py", None, {}),
        ("accelerate config", None, {}),
        ("python t.py torchrun-like", None, {}),
    ],
)
def test_ranks_meet_at_a_free_port(words: str, inserted: int | None, env: dict[str, str]) -> None:
    given = words.split()
    done, found = services.at_port(given, 5)
    if inserted is None:
        assert done == given
    else:
        assert done == [*given[:inserted], "--main_process_port", "5", *given[inserted:]]
    assert found == env


def test_each_launch_has_its_own_port(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with Protection(project, "in-place").launch() as place:
        place.rewritten(["torchrun", "t.py"])
        assert 1024 <= int(place.env["MASTER_PORT"]) < 65536
    monkeypatch.setenv("MASTER_PORT", "7")
    with Protection(project, "in-place").launch() as place:
        place.rewritten(["torchrun", "t.py"])
        assert "MASTER_PORT" not in place.env
