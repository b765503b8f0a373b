"""Trains a small network with JAX; the batch grows by some rows in every step."""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np

generator = np.random.default_rng(0)
sizes = (256, 1024, 1024, 10)
weights = [jnp.asarray(generator.normal(0, 0.05, pair)) for pair in itertools.pairwise(sizes)]


def loss(weights: list[jax.Array], rows: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = rows
    for weight in weights[:-1]:
        hidden = jax.nn.relu(hidden @ weight)
    chances = jax.nn.log_softmax(hidden @ weights[-1])
    return -jnp.take_along_axis(chances, labels[:, None], axis=1).mean()


def stepped(
    weights: list[jax.Array], rows: jax.Array, labels: jax.Array
) -> tuple[jax.Array, list[jax.Array]]:
    value, slopes = jax.value_and_grad(loss)(weights, rows, labels)
    return value, [weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=True)]


step = jax.jit(stepped)
for number in range(40):
    count = 2048 + 8 * number
    rows = generator.normal(size=(count, 256)).astype(np.float32)
    labels = generator.integers(0, 10, count)
    value, weights = step(weights, rows, labels)
    value.block_until_ready()
sys.stdout.write(f"last loss {float(value):.4f}\n")
