"""Secrets of many kinds are hidden in texts, words and bytes; what only looks like one is not."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shlex
import string
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Cli
from hypothesis import given, settings
from hypothesis import strategies as st
from madeup import PLACES, Planted, planted

from perfpipe.ingest.masking import mask, mask_bytes
from perfpipe.secrets import blank, hide, hide_words
from perfpipe.store import Store

ROOT = Path(__file__).parent.parent

#: Kinds of which the whole text is one argument.
TEXTS = ("pipes", "lists", "JSON")

#: A random word may look like a name.
CERTAIN = [one for one in planted() if one.kind != "random"]


def _words(one: Planted) -> list[str]:
    """Return the words that a program gets; a pipe is text of a shell."""
    return [one.text] if one.kind in TEXTS else shlex.split(one.text)


def _leaks(one: Planted) -> list[str]:
    """Return how a secret could still be read."""
    content = b"\0\x05" + one.text.encode() + b"\0"
    shown = {
        "hide": hide(one.text),
        "again": hide(hide(one.text)),
        "words": "\n".join(hide_words(_words(one))),
        "mask": mask(one.text, frozenset()),
        "blank": blank(content).decode(),
        "mask_bytes": mask_bytes(content, frozenset()).decode(),
    }
    assert len(blank(content)) == len(content)
    assert shown["hide"] == shown["again"]
    return [how for how, text in shown.items() if one.secret in text]


def test_there_are_enough_kinds() -> None:
    assert len(CERTAIN) >= 150
    assert len({one.kind for one in CERTAIN}) >= 60
    assert len({one.secret for one in CERTAIN}) == len(CERTAIN)


@pytest.mark.parametrize("kind", sorted({one.kind for one in CERTAIN}))
def test_secrets_of_a_kind_are_hidden(kind: str) -> None:
    leaks = {one.text: _leaks(one) for one in CERTAIN if one.kind == kind}
    assert {text: how for text, how in leaks.items() if how} == {}


@settings(max_examples=10, deadline=None)
@given(st.integers(min_value=2))
def test_other_secrets_of_all_kinds_are_hidden(seed: int) -> None:
    leaks = {one.text: _leaks(one) for one in planted(seed) if one.kind != "random"}
    assert {text: how for text, how in leaks.items() if how} == {}


@pytest.mark.parametrize("unit", ["k", "K1", "mysql ", "curl -u ", "docker 'x ", "--pw ", "://"])
def test_long_texts_take_proportional_time(unit: str) -> None:
    """Quadratic time would be minutes."""
    text = unit * (100_000 // len(unit))
    began = time.process_time()
    hide(text)
    blank(text.encode())
    hide_words(text.split(" "))
    assert time.process_time() - began < 20


def test_random_words_are_hidden_and_others_are_not() -> None:
    chance = random.Random(1)
    letters = string.ascii_letters + string.digits
    drawn = ["".join(chance.choices(letters, k=40)) for _ in range(1_000)]
    hidden = [hide(f"x --remote {word}") == "x --remote ***" for word in drawn]
    assert sum(hidden) > 950
    plain = [hashlib.sha256(word.encode()).hexdigest() for word in drawn]
    plain += [hashlib.sha1(word.encode()).hexdigest() for word in drawn]
    plain += [f"GPU-{uuid.UUID(int=chance.getrandbits(128))}" for _ in range(1_000)]
    plain += [f"sm_90/{digest[:32]}/kernel.cubin" for digest in plain[:100]]
    assert [word for word in plain if hide(word) != word] == []


#: The rest of a line is what a program is given.
PLAIN = (
    "docker run -p 8080:80 -e LOG_LEVEL=debug -v $PWD:/code -v \"$PWD\":/src image",
    "mysql -u root -p mydb", "redis-cli -h db -p 6379 ping", "psql -h db -p 5432 -U me",
    "ssh -p 2222 gpu-1 nvidia-smi", "mkdir -p /data/out", "curl -u me https://x.org",
    "curl -s -o out.json https://x.org/a?b=c", "unzip -q a.zip -d out", "zip -r a.zip out",
    "wandb login --relogin", "wandb login --host=https://wandb.example.org:8080/login",
    "git config user.name ada", "git config --global core.editor vim", "openssl version -a",
    "python train.py --flops_per_token=4833116160 --pw-layers 3",
    "python -c 'import numba' copy_blocked[v1,cw51cXTLSUwv1sDUaKthrqNgqqmjgOR3W3CwAkMXLaJtQYkOIg]",
    "_ZN7cutlass6KernelINS_4gemm6kernel11GemmTiledE8EEvNT_6ParamsE",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>>>",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_bias_bf16",
    "_ZN5torch8autograd12AutogradMeta11set_fw_gradERKN2at10TensorBaseES5_mb",
    "meta-llama/Llama-3.1-8B-Instruct TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ",
    "torch.nn.TransformerEncoderLayer2Forward3Backward", "main-20261127t063241z-61cd",
    "NCCL_SOCKET_IFNAME=eth0 CUDA_VISIBLE_DEVICES=GPU-5f9ee5b4-1c63-4f65-9a2c-6a6b0b0e9c11",
)  # fmt: skip


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_is_readable(text: str) -> None:
    assert hide(text) == text
    assert blank(text.encode()) == text.encode()


def _texts_of_captures(expand: Callable[[str], Path]) -> Iterator[str]:
    import sqlite3
    from contextlib import closing

    for path in sorted((ROOT / "tests/data/nsys").glob("*.sqlite.xz")):
        with closing(sqlite3.connect(expand(f"nsys/{path.stem}"))) as con:
            yield from (text for (text,) in con.execute("SELECT value FROM StringIds") if text)


def test_names_in_captures_are_readable(expand: Callable[[str], Path]) -> None:
    texts = {*_texts_of_captures(expand)}
    assert len(texts) > 1_000
    assert [text for text in texts if hide(text) != text] == []


def test_command_lines_of_the_docs_are_readable() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.rglob("workloads/*.yaml")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    lines = {line.strip() for line in text.splitlines()}
    commands = {line for line in lines if re.match(r"perfpipe |python|[\w.-]+: ?\S|\$ ", line)}
    assert len(commands) >= 500
    assert [line for line in commands if hide(line) != line] == []


def test_a_run_shows_stores_and_records_none(
    profilers: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfpipe.ingest.compressed.XZ_PRESET", 0)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    of_places = [next(one for one in CERTAIN if one.kind == kind) for kind in PLACES if
                 kind not in (*TEXTS, "random")]  # fmt: skip
    chosen = [*of_places, *(one for one in CERTAIN if one.text.startswith("python serve.py"))]
    secrets = [one.secret for one in chosen]
    words = [word for one in chosen for word in _words(one)]
    program = ("--", "python3", "program.py", *words)
    html, md = tmp_path / "out/r.html", tmp_path / "out/r.md"
    pages = (f"--html={html}", f"--md={md}")
    assert cli("run", "--collector", "all", "--json", *pages, *program, report=True) == 0, cli.err
    shown = [cli.out, cli.err]
    assert cli("record", "--to", tmp_path / "rec") == 0, cli.err
    assert cli("run", "--collector", "timing", *program, "--fail") == 1
    shown += [cli.out, cli.err]
    assert _found(secrets, "\n".join(shown)) == []
    store = tmp_path / "store"
    # Output of programs and raw reports are kept as they are: docs/security.md says so.
    kept = [p for p in store.rglob("*") if p.is_file() and p.suffix not in (".out", ".err")]
    kept += [html, md, *(p for p in (tmp_path / "rec").rglob("*") if p.is_file())]
    assert {"run.json", "result.json", "recording.yaml"} <= {path.name for path in kept}
    text = "\n".join(path.read_bytes().decode("latin-1") for path in kept)
    assert _found(secrets, text) == []
    records = json.dumps([vars(run) for run in Store(store).runs()], default=vars)
    assert "***" in records


#: Prints its arguments where it fails, as programs do.
PROGRAM = """
import json, sys
print(json.dumps({"perfpipe": "time", "ms": [3.0, 1.0, 2.0], "method": "queued"}))
if "--fail" in sys.argv:
    sys.exit("error: cannot run " + " ".join(sys.argv))
"""


def _found(secrets: list[str], text: str) -> list[str]:
    return [secret for secret in secrets if secret in text]
