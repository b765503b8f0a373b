"""The load: sends requests at planned times, whatever the server does, and prints one line each.

Runs as a program of its own, with a file that says what to send.  Arrivals are a Poisson process
that a seed determines.  Latencies count from the planned time, so that neither a slow server nor
a busy client hides a delay (coordinated omission: Tene, "How NOT to Measure Latency", 2013).
Without a rate, each request is sent when the previous one has ended.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.pipelines.serving.http_stream import Answer, Refused, Target, post

#: Before a planned time, the client waits awake for this long, s: a timer is 1 ms late.
_AWAKE_S = 0.002

#: Most requests of one load.
MOST = 1_000_000

#: Words of random prompts, most of which are one token.
_WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name president team minute idea kid body information back "
    "parent face others level office door health person art war history party result change"
).split()

_PROMPT = re.compile(r"\{prompt:(\d{1,6})\}")


@dataclass(frozen=True)
class Sending:
    """What to send; `rate` is None for one request after the other, `duration` in s."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    headers: dict[str, str] = field(default_factory=dict)
    rate: float | None = None
    requests: int | None = None
    duration: float | None = None
    seed: int = 0
    timeout: float = 60.0

    def write(self, path: Path) -> None:
        """Write it for the program."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def arrivals(sending: Sending) -> Iterator[float]:
    """Yield when requests arrive, s from the start: the intervals are exponentially distributed."""
    if sending.rate is None:
        yield from (0.0 for _ in range(sending.requests or 0))
        return
    chance, at = random.Random(f"{sending.seed} {sending.rate:g}"), 0.0  # noqa: S311
    for _ in range(sending.requests or MOST):
        at += chance.expovariate(sending.rate)
        if sending.duration is not None and at > sending.duration:
            return
        yield at


def body_of(sending: Sending, number: int) -> bytes:
    """Return the body of a request: in turn, with random words where it asks for a prompt."""
    chance = random.Random(f"{sending.seed} {sending.rate} {number}")  # noqa: S311
    body = sending.bodies[number % len(sending.bodies)]
    return json.dumps(_filled(body, chance)).encode()


def _filled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, str):
        return _PROMPT.sub(lambda found: " ".join(chance.choices(_WORDS, k=int(found[1]))), value)
    if isinstance(value, list):
        return [_filled(item, chance) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, chance) for key, item in value.items()}
    return value


async def send_all(sending: Sending) -> None:
    """Send the requests of a load and print a line for each as soon as it has ended.

    SIGTERM ends the load: requests in progress are printed as unanswered.
    """
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    target = Target.of(sending.url, sending.headers)
    tasks: set[asyncio.Task[None]] = set()
    waiting = asyncio.ensure_future(ended.wait())
    start, start_ns = time.monotonic(), time.time_ns()
    for number, at in enumerate(arrivals(sending)):
        if sending.rate is None:
            at = time.monotonic() - start
        await _until(start + at, ended)
        if ended.is_set():
            break
        planned_ns = start_ns + round(1e9 * at)
        task = asyncio.create_task(_one(sending, target, number, planned_ns))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if sending.rate is None:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    while tasks and not ended.is_set():
        await asyncio.wait({*tasks, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    waiting.cancel()


async def _until(then: float, ended: asyncio.Event) -> None:
    while not ended.is_set() and (left := then - time.monotonic()) > 0:
        # The short waits let responses arrive.
        await asyncio.sleep(min(left - _AWAKE_S, 0.2) if left > _AWAKE_S else 0)


async def _one(sending: Sending, target: Target, number: int, planned_ns: int) -> None:
    body = body_of(sending, number)
    answer, reason = Answer(), None
    sent_ns = time.time_ns()
    try:
        async with asyncio.timeout(sending.timeout):
            await post(target, body, answer)
    except TimeoutError:
        reason = f"timeout: no complete response within {sending.timeout:g} s"
    except Refused as error:
        reason = str(error)
    except OSError as error:
        reason = f"connection: {error.strerror or error}"
    except asyncio.CancelledError:
        reason = "unanswered: the load ended"
    except Exception as error:  # a fault of this program must not look like one of the server
        reason = f"client: {type(error).__name__}: {error}"
    _print(_line(answer, reason, planned_ns, sent_ns))


def _line(answer: Answer, reason: str | None, planned_ns: int, sent_ns: int) -> dict[str, Any]:
    tokens, source = answer.output_tokens, "server"
    if tokens is None and answer.streamed:
        tokens, source = len(answer.token_ns), "chunks"
    line = {
        "planned_ns": planned_ns,
        "sent_ns": sent_ns,
        "first_token_ns": answer.first_ns,
        "last_token_ns": answer.token_ns[-1] if answer.token_ns else None,
        "end_ns": time.time_ns(),
        "token_ns": answer.token_ns or None,
        "input_tokens": answer.input_tokens,
        "output_tokens": tokens,
        "tokens_from": None if tokens is None else source,
        "status": answer.status,
        "reason": reason,
        "bytes": answer.bytes,
    }
    return {key: value for key, value in line.items() if value is not None}


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Send what the file says that is the first argument."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        # Every request has a connection.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sending = Sending(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    asyncio.run(send_all(sending))


if __name__ == "__main__":
    main()
