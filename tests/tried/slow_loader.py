"""Trains on data that takes long to load, without loader workers."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):  # type: ignore[misc]
    """Samples that take 2 ms each."""

    def __init__(self) -> None:
        self.data = torch.arange(96.0).reshape(96, 1).expand(96, 16) / 96

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a sample, after a while."""
        time.sleep(0.002)
        return self.data[index], self.data[index].sum()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    loader = DataLoader(Slow(), 4, shuffle=True)
    for epoch in range(3):
        for x, y in loader:
            loss = (model(x).squeeze(1) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.6f}", flush=True)  # noqa: T201
