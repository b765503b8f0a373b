from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import ROOT, Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.pipelines.options import STEP_RANGE_VARIABLE
from perfpipe.pipelines.settings import (
    VARIABLES,
    effective,
    key_lines,
    read,
    slurm_options,
)
from perfpipe.pipelines.settings_model import Settings
from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.pipelines.workload import load_workload
from perfpipe.store import STORE_VARIABLE

PROJECT = """\
store = "results/store"      # below this file
step_range = "frame"

[slurm]
partition = "gpu"
time = "1h"
setup = ["module load cuda"]
container.runtime = "pyxis"
"""
USER = """\
step_range = "epoch"
store = "~/all"

[slurm]
account = "lab"
partition = "any"

[slurm.container]
mounts = ["/data"]
"""
WORKLOAD = (
    "version: 1\nname: w\ncommand: [prog]\nslurm: {time: 2h, gpus: 4, container: {image: x}}\n"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the user's file, and a project below which the working directory lies."""
    for name in os.environ:
        if name.startswith("PERFPIPE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "perfpipe").mkdir(parents=True)
    (tmp_path / "config" / "perfpipe" / "config.toml").write_text(USER)
    (tmp_path / "project" / "deep" / "down").mkdir(parents=True)
    (tmp_path / "project" / "perfpipe.toml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path / "project" / "deep" / "down")
    return tmp_path


def _workload(home: Path) -> Path:
    path = home / "w.yaml"
    path.write_text(WORKLOAD)
    return path


def test_what_is_closer_wins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFPIPE_SLURM_QOS", "high")
    monkeypatch.setenv("PERFPIPE_SLURM_GPUS", "2")
    path = _workload(home)
    found = {s.key: (s.value, s.origin) for s in effective((load_workload(path), path))}
    project = home / "project" / "perfpipe.toml"
    user = home / "config" / "perfpipe" / "config.toml"
    assert found["store"] == (str(home / "project" / "results" / "store"), f"{project}:1")
    assert found["step_range"] == ("frame", f"{project}:2")
    assert found["slurm.account"] == ("lab", f"{user}:5")
    assert found["slurm.partition"] == ("gpu", f"{project}:5")
    assert found["slurm.container.runtime"] == ("pyxis", f"{project}:8")
    assert found["slurm.container.mounts"] == (["/data"], f"{user}:9")
    assert found["slurm.time"] == ("0-02:00:00", str(path))
    assert found["slurm.gpus"] == (2, "$PERFPIPE_SLURM_GPUS")
    assert found["slurm.qos"] == ("high", "$PERFPIPE_SLURM_QOS")
    assert found["slurm.nodes"] == (1, "default")


def test_options_of_jobs_are_those_in_effect(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFPIPE_SLURM_GPUS", "2")
    monkeypatch.setenv("PERFPIPE_SLURM_EXCLUSIVE", "true")
    monkeypatch.setenv("PERFPIPE_SLURM_SETUP", "module load a\nmodule load b")
    workload = load_workload(_workload(home))
    slurm = slurm_options(workload.slurm, Slurm(gpus=8, account="other"))
    assert slurm == Slurm.model_validate(
        {
            "account": "other",
            "partition": "gpu",
            "time": "2h",
            "gpus": 8,
            "exclusive": True,
            "setup": ["module load a", "module load b"],
            "container": {"image": "x", "runtime": "pyxis", "mounts": ["/data"]},
        }
    )
    effects = {s.key: s.value for s in effective((workload, Path("w.yaml")))}
    assert effects["slurm.gpus"] == 2
    for key, value in slurm.model_dump(exclude={"container", "gpus", "account"}).items():
        assert effects[f"slurm.{key}"] == value


def test_every_setting_has_the_variable_of_its_reader() -> None:
    assert VARIABLES == {
        "store": STORE_VARIABLE,
        "step_range": STEP_RANGE_VARIABLE,
    }
    assert {*VARIABLES, "slurm"} == Settings.model_fields.keys()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("stoer = 'x'\n", r"perfpipe.toml:1: unknown key 'stoer'; did you mean 'store'\?"),
        ("[slurm]\n\npartitoin = 'x'\n", r"toml:3: unknown key 'partitoin'; .*'partition'"),
        (
            "[slurm]\ntime = 90\n",
            r"toml:2: slurm.time: '90' is not a valid time limit, or is ambiguous",
        ),
        (
            "[slurm.container]\nimage = 'x'\nruntime = 'docker'\n",
            r"toml:3: slurm.container.runtime",
        ),
        ("slurm.container.imag = 'x'\n", r"toml:1: unknown key 'imag'; did you mean 'image'"),
        ("[slurm]\ncontainer = {imag = 'x'}\n", r"toml:2: unknown key 'imag'"),
        ("store = 1\n", r"toml:1: store: input should be a valid string"),
        ("store = 'a'\nstore = 'b'\n", r"toml:2: cannot overwrite a value"),
        ("store = \n", r"toml:1: invalid value"),
        ("[slurm\n", r"toml:1: "),
        ('store = "a', r"toml:1: "),
        ("[slrum]\ntime = '1h'\n", r"toml:1: unknown key 'slrum'; did you mean 'slurm'"),
    ],
)
def test_faults_are_named_with_their_line(
    text: str, sentence: str, home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "project" / "perfpipe.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        read(path)
    monkeypatch.chdir(path.parent)
    monkeypatch.delenv("PERFPIPE_STORE")
    assert cli("store", "ls") == 2
    assert str(path) in cli.err


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "PARTITON",
            "x",
            r"\$PERFPIPE_SLURM_PARTITON: no such setting; .*PERFPIPE_SLURM_PARTITION",
        ),
        ("GPUS", "two", r"\$PERFPIPE_SLURM_GPUS: input should be a valid integer"),
        ("TIME", "30", r"\$PERFPIPE_SLURM_TIME: '30' is not a valid time limit"),
    ],
)
def test_faults_in_variables(
    name: str, value: str, sentence: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"PERFPIPE_SLURM_{name}", value)
    with pytest.raises(InputError, match=sentence):
        slurm_options()


def test_commands_use_the_files_and_leave_the_environment(
    home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home / "project" / "deep")
    monkeypatch.delenv("PERFPIPE_STORE")
    before = dict(os.environ)
    assert cli("store", "ls") == 2
    assert str(home / "project" / "results" / "store") in cli.err
    assert cli("store", "ls", "--store", "elsewhere") == 2
    assert "elsewhere: no store; " in cli.err
    assert dict(os.environ) == before
    monkeypatch.setenv("PERFPIPE_STORE", "of-the-shell")
    assert cli("store", "ls") == 2
    assert "of-the-shell: no store; " in cli.err


def test_batches_ask_for_what_the_files_state(
    home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home / "project")
    monkeypatch.setenv("PERFPIPE_SLURM_QOS", "high")
    monkeypatch.setenv("PATH", "/usr/bin/nowhere")
    words = ["batch", "submit", str(_workload(home)), "--dry-run", "--gpus", "2"]
    assert cli(*words) == 0
    lines = cli.out.splitlines()
    for wanted in ("partition=gpu", "account=lab", "qos=high", "time=0-02:00:00", "gres=gpu:2"):
        assert f"#SBATCH --{wanted}" in lines
    assert "module load cuda" in lines


def test_config_show(home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "project")
    monkeypatch.delenv("PERFPIPE_STORE")
    assert cli("config", "show") == 0
    rows = dict(line.split(None, 1) for line in cli.out.splitlines())
    assert (rows["slurm.partition"], rows["slurm.qos"]) == ('"gpu"', "-")
    assert cli("config", "show", "--origin", _workload(home)) == 0
    rows = dict(line.split(None, 1) for line in cli.out.splitlines())
    assert rows["step_range"].split() == ['"frame"', f"{home}/project/perfpipe.toml:2"]
    assert rows["slurm.time"].split() == ['"0-02:00:00"', f"{home}/w.yaml"]
    assert rows["slurm.requeue"].split() == ["false", "default"]
    assert cli("config", "show", "--json") == 0
    document = json.loads(cli.out)
    assert [Path(path).name for path in document["files"]] == ["config.toml", "perfpipe.toml"]
    settings = {s["key"]: s for s in document["settings"]}
    assert settings["store"]["value"] == f"{home}/project/results/store"
    assert settings["slurm.time"]["value"] == "0-01:00:00"


def test_without_files_all_is_default(home: Path) -> None:
    (home / "project" / "perfpipe.toml").unlink()
    (home / "config" / "perfpipe" / "config.toml").unlink()
    assert {s.origin for s in effective()} == {"default"}
    assert slurm_options() == Slurm()


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "workload-file.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "perfpipe.toml").write_text(example)
    assert read(tmp_path / "perfpipe.toml").slurm.limit_s == 7200


KEYS = st.lists(st.sampled_from(["a", "b-c", "d_1", '"q k"']), min_size=1, max_size=3)


@given(st.lists(KEYS, max_size=6), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_lines_of_keys(paths: list[list[str]], gaps: list[int]) -> None:
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for number, (path, gap) in enumerate(zip(paths, gaps, strict=False)):
        lines += ["# x = 1"] * gap + [f"[t{number}]", " . ".join(path) + " = 1  # y = 2"]
        expected[(f"t{number}",)] = len(lines) - 1
        expected[(f"t{number}", *(key.strip('"') for key in path))] = len(lines)
    assert key_lines("\n".join(lines)) == expected
