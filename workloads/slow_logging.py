"""Train a small network, and log the norm of every gradient in each step."""

import json

import torch
from torch.nn import functional

STEPS = 120


class GradientLog:
    """Keeps the norms of all gradients of a model, and writes them as text."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.history: list[dict[str, float]] = []

    def norms(self) -> dict[str, float]:
        """Return the norm of each gradient; reading one waits for the GPU."""
        return {
            name: parameter.grad.norm().item() for name, parameter in self.model.named_parameters()
        }

    def add(self) -> str:
        """Return the log of all steps so far."""
        self.history.append(self.norms())
        return json.dumps(self.history)


def main() -> None:
    """Train with random data."""
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    log = GradientLog(model)
    inputs = torch.randn(4096, 1024, device="cuda")
    labels = torch.randint(0, 10, (4096,), device="cuda")
    for _ in range(STEPS):
        loss = functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        log.add()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
