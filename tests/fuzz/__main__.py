"""Runs mutated inputs for some time: `python -m fuzz --seconds 600 --seed 1`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from fuzz.mutations import MAKERS
from fuzz.running import Order, run
from perfpipe.pipelines.console import say

#: Seconds between two lines about the progress.
PROGRESS_S = 30.0


def main() -> int:
    """Run inputs of each format in turn; say what is wrong, and how many there were."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--format", action="append", choices=sorted(MAKERS), dest="forms")
    parser.add_argument(
        "--keep", type=Path, help="directory for inputs that something is wrong with"
    )
    parser.add_argument("--report", action="store_true", help="also build a report of each")
    chosen = parser.parse_args()
    forms = chosen.forms or list(MAKERS)
    end = time.monotonic() + chosen.seconds

    def orders() -> Iterator[Order]:
        for number in count(chosen.first):
            for form in forms:
                if time.monotonic() > end:
                    return
                yield Order(chosen.seed, form, number, chosen.report)

    said = time.monotonic()
    outcomes: dict[str, Counter[str]] = {form: Counter() for form in forms}
    wrong = 0
    for judged in run(orders(), jobs=chosen.jobs):
        outcomes[judged.order.form][judged.outcome] += 1
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            inputs = sum(found.total() - found["WRONG"] for found in outcomes.values())
            say(f"{inputs:,} inputs, seed {chosen.seed}: {wrong} with something wrong")
        if judged.wrong:
            wrong += 1
            outcomes[judged.order.form]["WRONG"] += 1
            say(
                "\n  ".join((judged.order.name, judged.outcome, *(w[:2_000] for w in judged.wrong)))
            )
            if chosen.keep:
                folder = chosen.keep / judged.order.name
                folder.mkdir(parents=True, exist_ok=True)
                judged.order.make(folder)
    for form, found in outcomes.items():
        told = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(found.items()))
        say(f"{form}: {sum(found.values()) - found['WRONG']:,} inputs: {told}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
