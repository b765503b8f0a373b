"""The short form of source files."""

from __future__ import annotations

import duckdb
import pytest

from perfpipe.analysis.macros import source_macro


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
