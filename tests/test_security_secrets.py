"""Secrets that somebody planted are found nowhere but where docs/security.md says."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.batchrecord import Batch, BatchRun
from perfpipe.ingest.masking import mask, mask_value
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.scrub import scrub_file
from perfpipe.pipelines.place import variables
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import RunRecord, TaskResult
from perfpipe.secrets import blank, hidden, hide, hide_words, is_secret
from perfpipe.store import Store

#: PLANT is the secret.
TEXTS = (
    "train.py --api-key=PLANT --lr 0.1",
    "train.py --password PLANT --lr 0.1",
    'train.py --passphrase "PLANT PLANT"',
    "train.py --db postgres://user:PLANT@host:5432/x",
    "git clone https://PLANT@github.com/x/y",
    "redis://:PLANT@10.0.0.1/0",
    "curl -H 'Authorization: Bearer PLANTplant'",
    "curl -H Authorization:Bearer\tPLANTplant",
    "WANDB_API_KEY=PLANT python x.py",
    "PGPASSWORD=PLANT psql",
    "sshpass -e SSHPASS=PLANT",
    "apiKey=PLANT",
    "x --hf_token PLANT --wandb-token=PLANT",
    "AWS_ACCESS_KEY_ID=PLANT AWS_SECRET_ACCESS_KEY=PLANT",
    '{"password": "PLANT", "a": 1}',
    "{'api_key': 'PLANT'}",
    "https://x.blob.core.windows.net/a?sv=1&sig=PLANT&x=2",
    "login failed, password: PLANT",
    "-----BEGIN RSA PRIVATE KEY-----\nPLANT\n-----END RSA PRIVATE KEY-----",
    "ghp_PLANTPLANTPLANTPLANTPLANT",
    "hf_PLANTPLANTPLANTPLANT",
    "sk-proj-PLANT-PLANT7PLANTPLANT",
    "sk-PLANTPLANTPLANTPLANT7",
    "sk-PL_ANTPLANT-PLANT7PLANT",
    "eyJhbGciOiJI.PLANTPLANT.PLANT",
    "nvapi-PLANTPLANTPLANTPLANT",
    "postgres://user:p@PLANT@host/x",
    "train.py --password=a&PLANT --token=a;PLANT,PLANT --lr 0.1",
    "curl -H 'Cookie: a=PLANT; b=PLANT' https://host",
    'curl --header "Authorization: GenieKey PLANT" https://host',
    'env TOKEN="a PLANT" x',
    """DB_PASSWORD="it's PLANT" x""",
    r'x --password "a\" PLANT" --lr 1',
    r'{"command": "x --password \"a PLANT\" y"}',
    r"x --password a\ PLANT",
    "PASSWORD=$(echo PLANT) x",
    "PASSWORD=$(a (b PLANT) PLANT) x",
    "PASSWORD=`echo PLANT` x",
    "dbpassword=PLANT --userpass=PLANT clientsecret=PLANT hftoken=PLANT mysecretkey=PLANT",
    "x --passwords=PLANT --api-keys=PLANT --tokens=PLANT --cookies=PLANT --auth-tokens PLANT",
    "x --password -PLANT",
    "x --token=1PLANT --tokens=1,PLANT --token 1.PLANT --pass=12345PLANT --token=1;PLANT",
    "{'password': b'a PLANT', 'token': br'a PLANT'}",
)

#: Commands of which one argument has a secret of several words.
WORDS = (
    ("x", "--password=a PLANT"),
    ("x", "--password=a&PLANT"),
    ("curl", "-H", "Cookie: a=b; c=PLANT"),
    ("curl", "-H", 'Authorization: Digest username="a", response="PLANT"'),
    ("curl", "--header=X-Api-Key: a PLANT"),
    ("env", "TOKEN=a PLANT"),
    ("env", "DB_PASSWORD=it's PLANT"),
    ("x", "--password", "-PLANT"),
    ("sh", "-c", "x --password PLANT"),
)

#: What programs are given that only looks like it.
PLAIN = (
    "train.py --max-tokens 512 --tokenizer gpt2 --key-dim 64 --eos-token-id 3 --passes 2",
    "path=/data/x pattern=abc design=4 compat=1 monkey=2 passes=3 author=me",
    "unexpected token: ) in line 3",
    "KeyError: 'size'",
    "https://example.org/a?b=c#d@e",
    "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>(int, float)",
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn",
    "m=512 n=512 dtype=fp16",
    "train.py --pad-token 0 --pass 3 --max-tokens 512 --train-tokens 300B --use-auth-token true",
    "eos_token=2 num_tokens=8, n_tokens tokens_per_step=4096 tokens=[1,2] eosToken=128009 bypass=x",
    '{"max_tokens": 4096, "output_tokens": "512", "tokens": 1.5e9, "token": null}',
    "pip install sk-learn-some-long-name-here-yes sk-ant-colony-optimizer-with-long-name",
    "ASIATICELEPHANTS AKIACONSTRUCTIONMODEL AIzawaModelForCausalLMWithHeadsAndMoreOfThem",
    "ATTNv3Hopper2CausalBf16WithLSE8x Fp8E4M3QuantDequantPerTensorV2Kernel",
    "LTAInstructModelForCausal glrt-detector-with-a-long-name nvapi-sdk-headers-and-more",
    "fw_backwardattentionkernelofhopper",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_is_hidden(text: str) -> None:
    assert "PLANT" not in hide(text)
    assert hide(hide(text)) == hide(text)
    assert "PLANT" not in mask(text, frozenset())
    assert "PLANT" not in json.dumps(mask_value({"a": [text]}, frozenset()))
    masked = blank(text.encode())
    assert b"PLANT" not in masked
    assert len(masked) == len(text.encode())


@pytest.mark.parametrize("words", WORDS)
def test_an_argument_is_hidden_to_its_end(words: tuple[str, ...]) -> None:
    *before, last = hide_words(words)
    assert tuple(before) == words[:-1]
    assert last.endswith("***")
    assert "PLANT" not in last


def test_texts_within_a_secret_value_are_hidden() -> None:
    value = {"password": ["PLANT", {"a": "PLANT", "n": 1}], "n": [1]}
    assert hidden(value) == {"password": ["***", {"a": "***", "n": 1}], "n": [1]}
    value = {"password": b"PLANT", "tokens": "512", "a": (b"--password PLANT", 1)}
    assert hidden(value) == {
        "password": b"***", "tokens": "512", "a": (b"--password xxxxx", 1)
    }  # fmt: skip


def test_the_text_of_a_program_stays_but_for_its_secrets() -> None:
    words = ("sh", "-c", "TOKEN=PLANT python train.py")
    assert hide_words(words) == ("sh", "-c", "TOKEN=*** python train.py")


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays(text: str) -> None:
    assert hide(text) == text
    assert blank(text.encode()) == text.encode()
    assert hide_words(text.split()) == tuple(text.split())


@pytest.mark.parametrize("name", ["--api-key", "db_password", "apiKey", "TOKEN", "X-Auth-Token"])
def test_a_value_is_hidden_by_its_name(name: str) -> None:
    assert is_secret(name.lstrip("-"))
    assert hidden({name.lstrip("-"): "PLANT", "n": 1}) == {name.lstrip("-"): "***", "n": 1}
    if name.startswith("-"):
        assert hide_words(["x", name, "PLANT a", "y"]) == ("x", name, "***", "y")


@given(st.text(max_size=60), st.text("xyz0 /:@=-_.'\"", max_size=30))
def test_hiding_is_stable_and_keeps_lengths_in_bytes(one: str, two: str) -> None:
    text = f"{one} --token {two}"
    assert hide(hide(text)) == hide(text)
    assert len(blank(text.encode("utf-8", "replace"))) == len(text.encode("utf-8", "replace"))


def test_records_never_hold_a_secret() -> None:
    words = ("x", "--api-key", "PLANT", "--db=postgres://u:PLANT@h")
    ran = Ran("a", "b", 1.0, environment={"NCCL_DEBUG": "PLANT=1 token=PLANT", "CUDA_KEY": "PLANT"})
    task = TaskResult(
        index=0,
        label="api_key=PLANT n=1",
        params={"api_key": "PLANT", "n": 1},
        error="exit 1: password: PLANT",
        notes=("token=PLANT",),
        software={"auth_token": "PLANT"},
        command=words,
        ran=Ran("a", "b", 1.0, environment={"CUDA_API_KEY": "PLANT", "CUDA_X": "token=PLANT"}),
    )
    run = RunRecord("r", "w", "all", "t", words=words, tasks=(task,))
    batch = Batch(
        "b", "t", (BatchRun("r", "w", "f", "all", words=words),), 1, "s", "p", "d", command=words
    )
    for record in (run, task, batch):
        assert "PLANT" not in json.dumps(vars(record), default=vars)
    assert ran.environment == {"NCCL_DEBUG": "PLANT=1 token=***"}
    assert task.params["n"] == 1


def test_variables_are_kept_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_PRIVATE_KEY", "PLANT")
    monkeypatch.setenv("NVIDIA_API_KEY", "PLANT")
    monkeypatch.setenv("TORCH_HUB", "https://u:PLANT@h/x")
    monkeypatch.setenv("HOME_SECRET", "PLANT")
    found = variables({"MY_DSN": "PLANT", "PLAIN": "1"})
    assert "PLANT" not in str(found)
    assert found["TORCH_HUB"] == "https://***@h/x"
    assert found["PLAIN"] == "1"


@pytest.fixture
def planted(edited: Callable[..., Path]) -> Path:
    """A capture of a program with secrets in its arguments and environment."""
    words = ("train.py", "--api-key=PLANT", "--password", "PLANT me", "postgres://u:PLANT@h")
    capture = "INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('PROCESS_0:{}', '{}')"
    return edited(
        "h2d",
        "DELETE FROM META_DATA_CAPTURE WHERE name LIKE 'PROCESS_0:%'",
        capture.format("COMMAND", "python"),
        *(capture.format(f"ARGUMENT_{n}", word) for n, word in enumerate(words)),
        capture.format("ENVIRONMENT_VARIABLE", "RANK=0 AWS_KEY=PLANT"),
        capture.format("ENVIRONMENT_VARIABLE", 'SECRET_TOKEN=PLANT\nLOCAL_RANK="0"'),
    )


def _holding(root: Path, word: bytes = b"PLANT") -> list[str]:
    """Return the files that hold a word, in the Parquet files what they decode to."""
    import pyarrow.parquet as pq

    found = []
    for path in (p for p in root.rglob("*") if p.is_file()):
        text = path.read_bytes()
        if path.suffix == ".parquet":
            text += str(pq.read_table(path).to_pydict()).encode()
        if word in text:
            found.append(str(path.relative_to(root)))
    return found


def test_a_capture_with_secrets_leaves_none_in_store_and_reports(
    planted: Path, cli: Cli, tmp_path: Path
) -> None:
    assert cli("ingest", planted) == 0, cli.err
    (manifest,) = Store(tmp_path / "store").manifests()
    command = "python train.py --api-key=*** --password *** postgres://***@h"
    assert manifest.facts.command == command
    kinds = [f"--{kind}={tmp_path}/out/r.{kind}" for kind in ("html", "md", "json")]
    assert cli("report", *kinds) == 0, cli.err
    assert cli("query", "FROM nsys_environment", "--format", "csv") == 0
    assert "variable,RANK,0\n" in cli.out
    assert "PLANT" not in cli.out
    assert _holding(tmp_path / "store") == _holding(tmp_path / "out") == []


def test_scrubbed_captures_hold_no_secret(planted: Path, cli: Cli, tmp_path: Path) -> None:
    scrub_file(planted, tmp_path / "clean.sqlite")
    assert b"PLANT" not in (tmp_path / "clean.sqlite").read_bytes()
    with sqlite3.connect(tmp_path / "clean.sqlite") as con:
        kept = con.execute("SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%VARIABLE'")
        assert sorted(value for (value,) in kept) == ["LOCAL_RANK=0", "RANK=0"]
    con.close()
    trace = tmp_path / "trace.json"
    event = {"ph": "X", "name": "x --token PLANT", "ts": 0, "dur": 1, "pid": 1, "tid": 1}
    args = {"args": {"api_key": "PLANT", "cmd": "postgres://u:PLANT@h"}}
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{**event, **args}]}))
    scrub_file(trace, tmp_path / "clean.json")
    assert "PLANT" not in (tmp_path / "clean.json").read_text()


PROGRAM = """
import json, sys
def say(what, **more): print(json.dumps({"perfpipe": what, **more}))
say("about", torch="2.11.0", hf_token="PLANT")
say("time", ms=[3.0, 1.0, 2.0], method="queued")
print("login with password: PLANT", file=sys.stderr)
sys.exit(int("--fail" in sys.argv))
"""


def test_a_run_and_its_recording_hold_no_secret(
    profilers: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_API_KEY", "PLANT")
    monkeypatch.setattr("perfpipe.ingest.compressed.XZ_PRESET", 0)
    (tmp_path / "program.py").write_text(PROGRAM)
    program = ("--", "python3", "program.py", "--api-key=PLANT", "--password", "PLANT")
    kinds = [f"--{kind}={tmp_path}/out/r.{kind}" for kind in ("html", "md")]
    env = ("--env", "CUDA_TOKEN=PLANT", "--env", "URL=https://u:PLANT@h")
    assert cli("run", "--collector", "all", "--json", *env, *kinds, *program, report=True) == 0, (
        cli.err
    )
    assert "PLANT" not in cli.out + cli.err
    store = tmp_path / "store"
    # The program's own output is kept as it is: docs/security.md says so.
    assert not [name for name in _holding(store) if not name.endswith((".out", ".err"))]
    assert _holding(tmp_path / "out") == []
    assert cli("run", "--collector", "all", "--resume", *env, *program) == 0, cli.err
    assert "resuming program-" in cli.err, "the run is known by its words without secrets"
    assert cli("record", "--to", tmp_path / "rec") == 0, cli.err
    assert _holding(tmp_path / "rec") == []
    assert cli("run", "--collector", "all", *env, *program, "--fail") == 1
    assert "PLANT" not in cli.out + cli.err
    assert not [name for name in _holding(store) if not name.endswith((".out", ".err"))]


def test_without_raw_files_nothing_of_the_environment_stays(
    profilers: Path, planted: Path, cli: Cli, tmp_path: Path
) -> None:
    (profilers / "timeline.sqlite").unlink()
    (profilers / "timeline.sqlite").symlink_to(planted)
    store = tmp_path / "store"
    words = ("run", "--collector", "all")
    saved = tmp_path / "saved.yaml"
    assert cli(*words, "--no-raw", "--save", saved, "--", "echo", "good") == 0, cli.err
    assert cli(*words, saved) == 0, cli.err
    for run in Store(store).runs():
        (task,) = run.tasks
        assert len(task.reports) == 2
        printed = {path.suffix for path in (store / "runs" / run.run_id).rglob("tasks/*/*.*")}
        assert printed <= {".out", ".err", ".json"}
    assert _holding(store) == []
    assert cli("record", "--to", tmp_path / "rec") == 2
    assert "is gone; run it again" in cli.err
    # They stay where nothing is said, and docs/security.md says that they do.
    assert cli(*words, "--", "echo", "good") == 0, cli.err
    assert {Path(name).suffix for name in _holding(store)} == {".sqlite"}


def test_a_file_that_cannot_be_read_stays(profilers: Path, cli: Cli, tmp_path: Path) -> None:
    (profilers / "timeline.sqlite").unlink()
    (profilers / "timeline.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    assert cli("run", "--collector", "nsys", "--no-raw", "--", "echo", "good") == 1
    assert [*(tmp_path / "store").rglob("tasks/*/nsys.sqlite")]


@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_files_have_the_modes_of_the_umask(
    umask: int, expand: Callable[[str], Path], store: Store
) -> None:
    before = os.umask(umask)
    try:
        ingest(expand("nsys/memcpy.sqlite"), store)
        store.write_run(RunRecord("r", "w", "all", "t"))
    finally:
        os.umask(before)
    made = [stat.S_IMODE(path.stat().st_mode) for path in store.root.rglob("*")]
    assert len(made) > 5
    assert {mode & 0o666 for mode in made} == {0o666 & ~umask}
