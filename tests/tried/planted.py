"""Trains a small model; $PLANT names what is wrong: skip, lost, seed, frozen, or nothing."""

import os

import torch

PLANT = os.environ.get("PLANT", "")

if __name__ == "__main__":
    torch.manual_seed(1 if PLANT == "seed" else 0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    x = torch.randn(64, 16)
    y = x.sum(1, keepdim=True)
    for step in range(40):
        loss = (model(x) - y).square().mean()
        if PLANT == "lost":
            loss = loss * 0
        optimizer.zero_grad()
        if PLANT != "skip" or step < 20:
            loss.backward()
        if PLANT != "frozen":
            optimizer.step()
        else:
            optimizer.zero_grad()
            optimizer.step()
