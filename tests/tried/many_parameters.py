"""Spends its step in Python: an optimizer that updates hundreds of small parameters one by one."""

import torch

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(4, 4) for _ in range(150)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)
    x = torch.randn(8, 4)
    for _ in range(60):
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.6f}")  # noqa: T201
