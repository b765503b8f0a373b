"""Trains a small network in JAX until it is ended, and prints the time of each step."""

from __future__ import annotations

import json
import time
from typing import Any

import jax
import jax.numpy as jnp

WIDTH, LAYERS, BATCH = 512, 12, 64


def loss_of(params: Any, x: Any, y: Any) -> Any:
    """Return the mean squared error."""
    for weight in params:
        x = jax.nn.gelu(x @ weight)
    return jnp.mean((x - y) ** 2)


def main() -> None:
    """Train, on a GPU if there is one."""

    def stepped(params: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss_of)(params, x, y)
        return [one - 1e-3 * by for one, by in zip(params, gradients, strict=True)]

    step = jax.jit(stepped)
    keys = jax.random.split(jax.random.PRNGKey(0), LAYERS + 2)
    params = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5 for key in keys[2:]]
    x, y = (jax.random.normal(key, (BATCH, WIDTH)) for key in keys[:2])
    while True:
        began = time.perf_counter()
        params = jax.block_until_ready(step(params, x, y))
        ms = 1e3 * (time.perf_counter() - began)
        print(json.dumps({"perfpipe": "time", "ms": ms}), flush=True)


if __name__ == "__main__":
    main()
