"""Trains a small convolutional classifier in JAX."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

WIDTHS = [3, 64, 64, 128, 128, 256, 256]


def conv(x: Any, w: Any, stride: int = 1) -> Any:
    """Convolve x, N x H x W x C, with w, H x W x C x K."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=layout)


def forward(params: Any, x: Any) -> Any:
    """Return the logits of a batch."""
    for i, w in enumerate(params["conv"]):
        x = jax.nn.relu(conv(x, w, 2 if i % 2 else 1))
    return x.mean((1, 2)) @ params["out"]


def loss_of(params: Any, x: Any, y: Any) -> Any:
    """Return the mean cross-entropy."""
    logits = jax.nn.log_softmax(forward(params, x))
    return -jnp.mean(logits[jnp.arange(y.shape[0]), y])


@jax.jit
def update(params: Any, x: Any, y: Any) -> Any:
    """Return the parameters after a step of gradient descent, and the loss."""
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss


def main() -> None:
    """Train for 60 steps."""
    key = jax.random.PRNGKey(0)
    shapes = [(3, 3, a, b) for a, b in pairwise(WIDTHS)]
    params = {
        "conv": [0.05 * jax.random.normal(key, shape) for shape in shapes],
        "out": 0.05 * jax.random.normal(key, (WIDTHS[-1], 100)),
    }
    x = jax.random.normal(key, (256, 64, 64, 3))
    y = jax.random.randint(key, (256,), 0, 100)
    for step in range(60):
        params, loss = update(params, x, y)
        if step % 20 == 19:
            print(step, float(loss))


if __name__ == "__main__":
    main()
