"""Train a small CNN on images whose augmentation takes longer than the GPU needs for a step."""

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH = 60, 32


class Shift:
    """Add shifted copies of an image to it, one by one."""

    def __init__(self, copies: int) -> None:
        self.copies = copies

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        total = image
        for copy in range(self.copies):
            total = total + image.roll(copy, 2)
        return total / self.copies


class Images(Dataset):
    """Random images of ten classes."""

    shift = Shift(24)

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.rand(3, 96, 96, generator=torch.Generator().manual_seed(index))
        return self.shift(image), index % 10


def main() -> None:
    """Train for one epoch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Images(), BATCH, num_workers=2, pin_memory=True)
    for images, labels in loader:
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
