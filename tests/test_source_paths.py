"""The short form of source files."""

from __future__ import annotations

import duckdb
import pytest

from perfpipe.analysis.macros import source_macro
from perfpipe.ingest.frames import Owners
from perfpipe.ingest.masking import mask


@pytest.mark.parametrize(
    ("file", "short"),
    [
        ("/opt/conda/lib/python3.11/site-packages/torch/nn/modules/linear.py",
         "torch/nn/modules/linear.py"),
        ("/usr/lib/python3/dist-packages/numpy/core/fromnumeric.py", "numpy/core/fromnumeric.py"),
        ("/v/lib/python3.9/site-packages/apex-0.1-py3.9.egg/apex/amp.py", "apex/amp.py"),
        ("site-packages/six.py", "six.py"),
        ("/site-packages/v/lib/python3.12/site-packages/a/b.py", "a/b.py"),
        ("/usr/lib/python3.12/concurrent/futures/thread.py", "concurrent/futures/thread.py"),
        ("/u/.pyenv/versions/3.13.0t/lib/python3.13t/threading.py", "threading.py"),
        ("lib/python3.10/queue.py", "queue.py"),
        ("/usr/lib/python311.zip/json/decoder.py", "json/decoder.py"),
        ("C:\\Python311\\Lib\\json\\decoder.py", "json/decoder.py"),
        ("C:\\v\\Lib\\site-packages\\torch\\cuda\\__init__.py", "torch/cuda/__init__.py"),
        ("D:\\work\\train.py", "train.py"),
        ("/home/ada/Lib/train.py", "train.py"),
        ("/train.py", "train.py"),
        ("train.py", "train.py"),
        ("./src/train.py", "train.py"),
        ("../src/train.py", "train.py"),
        ("torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        ("/tmp/ipykernel_71/3059234.py", "<cell 3059234>"),
        ("<ipython-input-3-c0ffee>", "<ipython-input-3-c0ffee>"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("<eval_with_key>.7", "<eval_with_key>.7"),
        ("<eval_with_key>.7 from /v/x.py:5 in forward", "<eval_with_key>.7"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54", "libcuda.so.550.54"),
        ("", ""),
        (None, None),
    ],
)  # fmt: skip
def test_short_form(file: str | None, short: str | None) -> None:
    con = duckdb.connect()
    con.execute(source_macro().sql)
    assert con.execute("SELECT short_source(?::VARCHAR)", [file]).fetchall() == [(short,)]


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/home/ada/v/lib/python3.12/site-packages/torch/nn/init.py",
         "site-packages/torch/nn/init.py"),
        ("/usr/lib/python3/dist-packages/apt/cache.py", "dist-packages/apt/cache.py"),
        ("/home/ada/.local/lib/python3.10/site-packages/six.py", "site-packages/six.py"),
        ("/site-packages/v/lib/python3.12/site-packages/a/b.py", "site-packages/a/b.py"),
        ("/v/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so",
         "site-packages/torch/lib/libtorch_cpu.so"),
        ("/usr/lib/python3.12/threading.py", "lib/python3.12/threading.py"),
        ("/home/ada/.pyenv/versions/3.13.0t/lib/python3.13t/json/decoder.py",
         "lib/python3.13t/json/decoder.py"),
        ("/usr/lib64/python3.9/queue.py", "lib64/python3.9/queue.py"),
        ("/usr/lib/python311.zip/json/decoder.py", "python311.zip/json/decoder.py"),
        ("/home/ada/eggs/foo-0.1-py3.9.egg/foo/x.py", "foo-0.1-py3.9.egg/foo/x.py"),
        ("/home/ada/.pex/wheels/torch-2.4.0-cp311.whl/torch/hub.py",
         "torch-2.4.0-cp311.whl/torch/hub.py"),
        ("/tmp/torchinductor_ada/ab/cab.py", "torchinductor_/ab/cab.py"),
        ("/home/ada/.triton/cache/c0ffee/add.py", ".triton/cache/c0ffee/add.py"),
        ("/tmp/ipykernel_71/3059234.py", "ipykernel_71/3059234.py"),
        ("/home/ada/run/train.py", "train.py"),
        ("/home/ada/run/lib/data.py", "data.py"),
        ("/home/ada/my-site-packages/x.py", "x.py"),
        ("/home/ada/lib/python/x.py", "x.py"),
        ("/opt/v/bin/torchrun", "torchrun"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6"),
        ("/home/ada/My Project/train.py", "train.py"),
        ("C:\\Users\\ada\\My Project\\train.py", "train.py"),
        ("./../ada/train.py", "train.py"),
        ("~/run/train.py", "train.py"),
        ("torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
    ],
)  # fmt: skip
def test_masked_paths_say_whose_code_it_is(path: str, kept: str) -> None:
    assert mask(path, frozenset({"ada"})) == kept
    assert mask(kept, frozenset({"ada"})) == kept
    assert Owners().of_file(kept) == Owners().of_file(path)
