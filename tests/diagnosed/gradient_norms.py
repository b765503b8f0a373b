"""Trains a small transformer; logs the gradient norm of every parameter in every step."""

import sys

import torch
from torch import nn

model = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True),
    num_layers=6,
    enable_nested_tensor=False,
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
batch = torch.randn(16, 256, 512, device="cuda")


def gradient_norms() -> dict[str, float]:
    return {
        name: parameter.grad.norm().item()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


history = []
for _ in range(60):
    with torch.autocast("cuda", torch.bfloat16):
        loss = (model(batch) - batch).square().mean()
    loss.backward()
    history.append(gradient_norms())
    optimizer.step()
    optimizer.zero_grad()
sys.stdout.write(f"{len(history)} steps, last loss {loss.item():.4f}\n")
