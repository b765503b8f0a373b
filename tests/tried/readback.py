"""Reads the loss back in every step, which no lever can change."""

import torch

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(32, 64)
    total = 0.0
    for _ in range(200):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"total {total:.6f}")  # noqa: T201
