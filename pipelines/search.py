"""Proposes configurations of a search in generations: random first, then near the best."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, did_you_mean
from perfpipe.jsonfile import json_lines
from perfpipe.pipelines.tasks import combinations
from perfpipe.pipelines.workload import Params, Scalar, Tune, Workload
from perfpipe.runrecord import TaskResult

#: Attempts to draw a new neighbor before falling back to a random configuration.
_TRIES = 50


class Search:
    """A search over the parameters of `tune`, for one configuration of sizes and matrix.

    The same results lead to the same proposals.  Raises InputError if the workload has several
    configurations to search in, or if the candidates file cannot be used.
    """

    def __init__(self, workload: Workload, path: Path) -> None:
        if workload.tune is None:
            raise ValueError("the workload has no tune")
        self.tune: Tune = workload.tune
        fixed = combinations(workload)
        if len(fixed) != 1:
            raise InputError(
                f"{path}: tune needs a single configuration, but sizes and matrix give "
                f"{len(fixed)}; select one configuration with --set"
            )
        self._fixed = fixed[0]
        if clash := self._fixed.keys() & self.tune.parameters.keys():
            raise InputError(f"{path}: {', '.join(sorted(clash))}: set in both matrix and tune")
        self._space = math.prod(len(values) for values in self.tune.parameters.values())
        self._listed = (
            _candidates(path.parent / self.tune.candidates, self.tune)
            if self.tune.candidates
            else None
        )

    @property
    def generations(self) -> int:
        """Number of generations."""
        return len(self._listed) if self._listed is not None else self.tune.generations

    @property
    def is_listed(self) -> bool:
        """Whether the configurations come from a file, and are not searched."""
        return self._listed is not None

    def next_generation(self, results: Sequence[TaskResult]) -> list[Params]:
        """Return the parameters to try next, without those that were already tried.

        `results` are all earlier results.  Returns fewer when the parameter space is exhausted.
        """
        done = {result.generation for result in results}
        generation = len(done)
        if self._listed is not None:
            return [{**self._fixed, **params} for params in self._listed[generation]]
        rng = random.Random(f"{self.tune.seed}-{generation}")  # noqa: S311
        tried = {self._searched(result.params) for result in results}
        best = [dict(self._searched(r.params)) for r in _fastest(results)[: self.tune.keep]]
        found: list[Params] = []
        if not results and self.tune.default:
            self._accept(dict(self.tune.default), tried, found)
        while len(found) < self.tune.population and len(tried) < self._space:
            near = rng.choice(best) if best else None
            for _ in range(_TRIES if near else 0):
                if self._accept(self._neighbour(near or {}, rng), tried, found):
                    break
            else:
                self._accept(self._random(rng), tried, found)
        return [{**self._fixed, **params} for params in found]

    def finalists(self, results: Sequence[TaskResult]) -> list[TaskResult]:
        """Return the results of the fastest configuration and of the default."""
        best = _fastest(results)[:1]
        return best + [r for r in results if r.done and r.default and r not in best]

    def _searched(self, params: Params) -> tuple[tuple[str, Scalar], ...]:
        return tuple((name, params[name]) for name in self.tune.parameters)

    def _accept(
        self, params: Params, tried: set[tuple[tuple[str, Scalar], ...]], found: list[Params]
    ) -> bool:
        key = self._searched(params)
        if key in tried:
            return False
        tried.add(key)
        found.append(params)
        return True

    def _random(self, rng: random.Random) -> Params:
        return {name: rng.choice(values) for name, values in self.tune.parameters.items()}

    def _neighbour(self, params: Params, rng: random.Random) -> Params:
        """Return a configuration one step away in one parameter, or in two."""
        near = dict(params)
        movable = [name for name, values in self.tune.parameters.items() if len(values) > 1]
        for name in rng.sample(movable, min(len(movable), rng.choice((1, 1, 2)))):
            values = self.tune.parameters[name]
            at = values.index(near[name])
            near[name] = values[rng.choice([i for i in (at - 1, at + 1) if 0 <= i < len(values)])]
        return near


def _fastest(results: Sequence[TaskResult]) -> list[TaskResult]:
    timed = [(r.median_ms, r.index, r) for r in results if r.done and r.median_ms is not None]
    return [result for *_, result in sorted(timed, key=lambda item: item[:2])]


def _candidates(path: Path, tune: Tune) -> list[list[Params]]:
    """Return listed configurations by generation; raises InputError with the line of an error."""
    by_generation: dict[int, list[Params]] = {}
    for where, value in json_lines(path, "JSON object"):
        generation = value.pop("generation", 0)
        params = value.get("params", value)
        if not isinstance(generation, int) or not isinstance(params, dict):
            raise InputError(f"{where}: expected parameters and an integer 'generation'")
        _check(params, tune, where)
        by_generation.setdefault(generation, []).append(params)
    if not by_generation:
        raise InputError(f"{path}: no candidates")
    return [by_generation[generation] for generation in sorted(by_generation)]


def _check(params: dict[str, Any], tune: Tune, where: str) -> None:
    for name, value in params.items():
        if name not in tune.parameters:
            hint = did_you_mean(name, tune.parameters)
            raise InputError(f"{where}: no parameter '{name}' in tune{hint}")
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise InputError(f"{where}: {name} must be a number or a string")
    if missing := tune.parameters.keys() - params.keys():
        raise InputError(f"{where}: {', '.join(sorted(missing))} missing")
