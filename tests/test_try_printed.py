"""Numbers that programs print: results are found, times and settings are left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.trying.printed import printed


def found(text: str) -> list[tuple[str, tuple[float, ...]]]:
    return [(number.name, values) for number, values in printed(text).numbers.items()]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("loss=0.42", [("loss", (0.42,))]),
        ("step 100 | loss: 3.1e-2 | lr 1e-3 | 0.2s", [("loss", (0.031,))]),
        ("{'train_runtime': 12.3, 'train_loss': 0.51, 'epoch': 3.0}", [("train loss", (0.51,))]),
        ('{"loss": 0.42, "learning_rate": 0.0001}', [("loss", (0.42,))]),
        (
            " 45%|████▌   | 9/20 [00:03<00:04,  2.50it/s, loss=0.42]\r 50%|█████   | 10/20 "
            "[00:03<00:04,  2.60it/s, loss=0.41]",
            [("it s loss", (0.42, 0.41))],
        ),
        (
            "Test set: Average loss: 0.0265, Accuracy: 9912/10000 (99%)",
            [
                ("set average loss", (0.0265,)),
                ("accuracy", (9912,)),
                ("accuracy", (10000,)),
                ("accuracy", (99,)),
            ],
        ),
        ("2026-11-26 19:45:01,123 INFO val_loss 1.5", [("info val loss", (1.5,))]),
        ("tensor(0.1234, device='cuda:0') resnet50 v1.2.3", [("tensor", (0.1234,))]),
        ("Epoch: [0][10/391]\tTime 0.12 (0.20)\tData 0.01 (0.02)\tLoss 2.3 (2.4)",
         [("loss", (2.3,)), ("loss", (2.4,))]),
        ("1,234.5 tok/s, 12.3 ms, 3.2GB, 250 images/sec, 42% util, 12.5 W", []),
        ("elapsed 12.5, ETA: 3.5, throughput 99.5", []),
        ("lr 0.1 epoch 3.0 dropout 0.5 seed 42", []),
        ("loss nan", [("loss", ())]),
        ("\x1b[32mloss\x1b[0m 1,234.25", [("loss", (1234.25,))]),
        ("pid 4242 port 29500 0x7f31 batch_size 32", []),
        ('{"perfpipe": "time", "ms": [1.5]}', []),
    ],
)  # fmt: skip
def test_numbers_that_may_be_results(
    text: str, numbers: list[tuple[str, tuple[float, ...]]]
) -> None:
    own = found(text)
    if "nan" in text:
        assert [name for name, _ in own] == ["loss"]
    else:
        assert own == numbers


def test_ranks_have_their_own_series() -> None:
    text = "[rank 0] loss 1.5\n[rank 1] loss 2.5\n[rank 1] loss 2.4\n[rank 0] loss 1.4\n"
    assert [values for _, values in found(text)] == [(1.5, 1.4), (2.5, 2.4)]


def test_messages_to_perfpipe() -> None:
    text = '{"perfpipe": "about", "torch": "2.1", "losses": "abc"}\n'
    text += '{"perfpipe": "validation", "ok": true, "max_abs_error": 0.01, "rank": 3}\n'
    assert printed(text).texts == {"losses": "abc"}
    assert found(text) == [("validation max abs error", (0.01,)), ("validation ok", (1,))]


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    for values in printed(text).numbers.values():
        assert values


@given(st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=20))
def test_a_printed_series_is_found_again(values: list[float]) -> None:
    text = "".join(f"step {at}: loss {value:.6f} in 3.2 s\n" for at, value in enumerate(values))
    assert found(text) == [("loss", tuple(float(f"{value:.6f}") for value in values))]


def test_a_long_output_is_read_at_both_ends() -> None:
    lines = [f"loss {at}.5" for at in range(300_000)]
    (_, values), *_ = found("\n".join(lines))
    assert values[0] == 0.5 and values[-1] == 299_999.5
    assert len(values) <= 4096
