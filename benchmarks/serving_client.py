"""Sends requests to a server with the openai package, at random times, and measures latencies.

    python benchmarks/serving_client.py http://127.0.0.1:8000/v1 MODEL RATE SECONDS FILE

Prints a line for each request, as perfpipe reads them, and appends its own percentiles to FILE.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from openai import AsyncOpenAI

#: Words of a prompt, how many it has, and the tokens of an answer.
WORDS, PROMPT, ANSWER = (
    "import return class def self path json time for while yield".split(),
    256,
    48,
)


async def request(client: AsyncOpenAI, model: str, at: float, prompt: str) -> dict[str, Any]:
    """Send a request at a time, s since 1970, and return its times."""
    await asyncio.sleep(max(0.0, at - time.time()))
    found: dict[str, Any] = {"planned_ns": int(at * 1e9), "sent_ns": time.time_ns(), "status": 200}
    stream = await client.completions.create(
        model=model, prompt=prompt, max_tokens=ANSWER, stream=True
    )
    async for piece in stream:
        if piece.choices and piece.choices[0].text:
            found.setdefault("first_token_ns", time.time_ns())
        if piece.usage:
            found["input_tokens"] = piece.usage.prompt_tokens
            found["output_tokens"] = piece.usage.completion_tokens
    return {**found, "end_ns": time.time_ns(), "reason": None}


async def load(url: str, model: str, rate: float, seconds: float) -> list[dict[str, Any]]:
    """Send requests as a Poisson process, and return them."""
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)
    chance, start, planned = random.Random(11), time.time() + 0.2, []
    at = chance.expovariate(rate)
    while at < seconds:
        prompt = " ".join(chance.choice(WORDS) for _ in range(PROMPT))
        planned.append(request(client, model, start + at, prompt))
        at += chance.expovariate(rate)
    return await asyncio.gather(*planned)


def percentiles(requests: list[dict[str, Any]]) -> dict[str, float]:
    """Return the 50th and 95th percentiles of latencies, ms, by name."""
    times = {
        "ttft": [one["first_token_ns"] - one["planned_ns"] for one in requests],
        "e2e": [one["end_ns"] - one["planned_ns"] for one in requests],
    }
    return {
        f"{name}_p{share}_ms": float(np.percentile(found, share)) / 1e6
        for name, found in times.items()
        for share in (50, 95)
    }


def main() -> None:
    """Send, print, and append."""
    url, model, rate, seconds, file = sys.argv[1:]
    found = asyncio.run(load(url, model, float(rate), float(seconds.rstrip("s"))))
    for one in found:
        print(json.dumps(one))
    with Path(file).open("a", encoding="utf-8") as own:
        own.write(json.dumps({"rate": float(rate), "requests": len(found), **percentiles(found)}))
        own.write("\n")


if __name__ == "__main__":
    main()
