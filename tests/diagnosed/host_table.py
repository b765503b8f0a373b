"""Trains a ranking network; its embedding table stays in host memory."""

import sys

import torch
from torch import nn

ITEMS, WIDTH, BATCH, FIELDS = 400_000, 256, 8192, 26
table = torch.randn(ITEMS, WIDTH)
ranker = nn.Sequential(
    nn.Linear(FIELDS * WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1)
).cuda()
optimizer = torch.optim.SGD(ranker.parameters(), lr=0.01)


def looked_up(chosen: torch.Tensor) -> torch.Tensor:
    rows = table.index_select(0, chosen.flatten())
    return rows.view(BATCH, FIELDS * WIDTH).to("cuda")


losses = []
for _ in range(40):
    chosen = torch.randint(ITEMS, (BATCH, FIELDS))
    clicked = torch.rand(BATCH, 1, device="cuda").round()
    score = ranker(looked_up(chosen))
    loss = nn.functional.binary_cross_entropy_with_logits(score, clicked)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())
sys.stdout.write(f"last loss {losses[-1].item():.4f}\n")
