"""A diagnosis by the tools alone fits into a small part of a model's context."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfpipe.pipelines.agents import tools
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.store import Store

#: Most tokens of a diagnosis, and characters of a token.
TOKENS, CHARACTERS = 6_000, 4

#: Most calls that `next` leads to.
_HOPS = 8


class Diagnosis:
    """Asks for overview, first finding and timeline, then for what the answers lead to."""

    def __init__(self, store: Store, target: str) -> None:
        self.desk = Desk(store)
        self.texts: dict[str, str] = {}
        calls: list[dict[str, Any]] = [
            {"tool": "overview", "arguments": {"target": target}},
            {"tool": "timeline", "arguments": {"target": target}},
            {"tool": "explain", "arguments": {"target": target, "finding": 1}},
        ]
        while calls and len(self.texts) < _HOPS:
            following = self._ask(calls.pop(0))
            calls += [following] if following else []
        self.desk.close()

    def _ask(self, call: dict[str, Any]) -> Any:
        """Return what to ask next; nothing if it was asked before."""
        key = json.dumps(call, sort_keys=True)
        if key in self.texts:
            return None
        self.texts[key], _ = tools.call(self.desk, call["tool"], call["arguments"])
        return json.loads(self.texts[key])["next"]

    @property
    def tokens(self) -> float:
        """About how many tokens the answers are."""
        return sum(map(len, self.texts.values())) / CHARACTERS


@pytest.mark.parametrize(
    "name",
    ["ddp_step", "gemm", "jax_train", "slow_loader", "slow_logging", "transformer_step"],
)
def test_a_recording_is_diagnosed_in_few_tokens(replayed: Callable[[str], Path], name: str) -> None:
    store = Store(replayed(name))
    (run,) = store.run_ids()
    found = Diagnosis(store, run)
    assert len(found.texts) >= 3
    assert found.tokens <= TOKENS, {key: len(text) for key, text in found.texts.items()}


@pytest.mark.parametrize(
    "names",
    [
        ["real/llama_train.sqlite", "real/llama_train.ncu-rep"],
        ["nsys/collectives_rank0.sqlite", "nsys/collectives_rank1.sqlite"],
        ["stacks/lock_step.sqlite"],
        ["ncu/visible.ncu-rep"],
    ],
    ids=lambda names: names[0],
)
def test_a_capture_is_diagnosed_in_few_tokens(
    captures: Store, ingested: Callable[[str], str], names: list[str]
) -> None:
    found = Diagnosis(captures, ",".join(map(ingested, names)))
    assert found.tokens <= TOKENS, {key: len(text) for key, text in found.texts.items()}
