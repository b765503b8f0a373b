"""The JSON of traces: read in pieces of any size, repaired where Kineto breaks it, cut, refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.ingest.torch.ranks import DistinctNumbers
from perfpipe.ingest.torch.repair import repaired
from perfpipe.ingest.torch.trace_json import Damaged, TraceJson

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"', "\\", '", "pid": 1', '}, {"ph": "X"', "]}", "[TP00] 7", "Ω" * 9]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
)
_EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.just("X"), "name": _TEXTS, "ts": st.floats(0, 1e16)},
        optional={"args": st.dictionaries(_TEXTS, _VALUES, max_size=3)},
    ),
    max_size=6,
)


def _pieces(content: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


def _read(content: bytes, size: int = 1 << 20) -> tuple[TraceJson, list[dict[str, Any]]]:
    trace = TraceJson(_pieces(content, size), float)
    return trace, [*trace.events()]


@given(
    _EVENTS,
    st.dictionaries(_TEXTS.filter(lambda name: name != "traceEvents"), _VALUES, max_size=3),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.integers(1, 40),
)
def test_pieces_of_any_size_give_what_the_whole_text_gives(
    events: list[Any], members: dict[str, Any], indent: int | None, first: bool, size: int
) -> None:
    own = {"traceEvents": events}
    document = own | members if first else members | own
    trace, found = _read(json.dumps(document, indent=indent, ensure_ascii=False).encode(), size)
    assert found == events
    assert trace.members == members
    assert (trace.repaired, trace.lost, trace.cut) == (0, 0, False)


@given(_EVENTS, st.integers(1, 40))
def test_a_list_of_events_is_a_trace(events: list[Any], size: int) -> None:
    trace, found = _read(json.dumps(events).encode(), size)
    assert found == events
    assert not trace.cut


def _event(number: int) -> str:
    return json.dumps(
        {"ph": "X", "name": f"k{number}", "ts": number, "args": {"grid": [1, 1, 1], "stream": 7}}
    )


@given(st.integers(1, 5), st.data(), st.integers(1, 60))
def test_a_cut_trace_gives_the_events_before_the_cut(
    count: int, data: st.DataObject, size: int
) -> None:
    events = [_event(number) for number in range(count)]
    head = '{"schemaVersion": 1, "traceEvents": ['
    whole = head + ", ".join(events) + "]}"
    cut = data.draw(st.integers(len(head), len(whole) - 1))
    ends = [len(head + ", ".join(events[: number + 1])) for number in range(count)]
    trace, found = _read(whole[:cut].encode(), size)
    assert [event["name"] for event in found] == [
        f"k{number}" for number, end in enumerate(ends) if end <= cut
    ]
    assert trace.cut


#: Texts that Kineto writes as they are, and the name that they stand for.
BROKEN = {
    '"name": "record "loss" of step"': 'record "loss" of step',
    '"name": "{"bs": 32, "mode": "train"}"': '{"bs": 32, "mode": "train"}',
    '"name": "f(a="1", "b": 2)"': 'f(a="1", "b": 2)',
    r'"name": "C:\Users\me\Desktop\train.py(7): step"': r"C:\Users\me\Desktop\train.py(7): step",
    '"name": "C:\\data\\"': "C:\\data\\",
    '"name": "a\tb\x01c"': "a\tb\x01c",
    '"name": "k", "bw": inf': "k",
    '"name": "k", "bw": -nan': "k",
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("size", [7, 1 << 20])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_events_that_are_not_json_are_repaired(broken: str, size: int, place: int) -> None:
    events = [_event(number) for number in range(2)]
    events.insert(place, f'{{"ph": "X", {broken}, "pid": 1, "ts": 5.5, "args": {{"stream": 7}}}}')
    text = '{"traceEvents": [\n' + ",\n".join(events) + '\n], "traceName": "t.json"}'
    trace, found = _read(text.encode(), size)
    assert found[place]["name"] == BROKEN[broken]
    assert found[place]["ts"] == 5.5
    assert found[place]["args"] == {"stream": 7}
    assert [event["name"] for event in found if event["ts"] != 5.5] == ["k0", "k1"]
    assert (trace.repaired, trace.lost, trace.cut) == (1, 0, False)
    assert trace.members == {"traceName": "t.json"}


def test_bytes_that_are_not_utf8_are_counted() -> None:
    trace, found = _read(b'{"traceEvents": [{"ph": "X", "name": "caf\xe9"}]}')
    assert [event["name"] for event in found] == ["caf\udce9"]
    assert trace.stray == 1


def test_what_is_not_clear_is_counted_as_lost() -> None:
    trace, found = _read(
        b'{"traceEvents": [{"ph": "X", "name": "a"}, {"ph": "X", "ts": ?}, {"ph": "X"}, 7]}'
    )
    assert [event.get("name") for event in found] == ["a", None]
    assert (trace.repaired, trace.lost) == (0, 2)


def test_numbers_of_thousands_of_digits_are_lost() -> None:
    text = f'{{"traceEvents": [{{"ts": {"9" * 5000}}}, {_event(1)}]}}'
    trace, events = _read(text.encode())
    assert len(events) + trace.lost == 2
    assert events[-1] == json.loads(_event(1))


def test_arguments_that_are_not_clear_leave_their_whole_numbers() -> None:
    text = '{"ph": "X", "name": "k", "args": {"stream": 7, "inputs": ["[1, "2"]"], "device": 1}}'
    assert repaired(text) == {"ph": "X", "name": "k", "args": {"stream": 7, "device": 1}}


def test_a_damaged_member_does_not_hide_the_events() -> None:
    text = r'{"user": "C:\Users\x", "traceEvents": [{"ph": "X", "name": "a"}], "traceName": "D:\y"}'
    trace, found = _read(text.encode())
    assert [event["name"] for event in found] == ["a"]
    assert not trace.cut


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("7", "not JSON"),
        ("{}", "no traceEvents"),
        ('{"a": 1', "ends before its events"),
        ('{"traceEvents": []} {"traceEvents": []}', "more text follows"),
        ('{"traceEvents": 7}', "no traceEvents"),
    ],
)
def test_other_texts_are_refused(text: str, why: str) -> None:
    with pytest.raises(Damaged, match=re.escape(why)):
        _read(text.encode())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=20))
def test_numbers_of_ranks_become_distinct(used: list[tuple[str, int]]) -> None:
    numbers = DistinctNumbers()
    given_numbers = {key: numbers.of(*key) for key in used}
    assert len(set(given_numbers.values())) == len(given_numbers)
    assert {key: numbers.of(*key) for key in used} == given_numbers
    assert numbers.changed == {
        given: number for (_, number), given in given_numbers.items() if given != number
    }
