"""Trains a ResNet-50 of torchvision with a DataLoader, and evaluates it every 20 steps."""

from __future__ import annotations

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Random images, created on access."""

    def __len__(self) -> int:
        return 64 * 60

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(i)
        return torch.rand(3, 160, 160, generator=generator), i % 1000


def main() -> None:
    """Train for 60 steps."""
    torch.manual_seed(0)
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(Images(), batch_size=64, num_workers=4, pin_memory=True)
    criterion = torch.nn.CrossEntropyLoss()
    for step, (images, labels) in enumerate(loader):
        images = images.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        labels = labels.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 19:
            model.eval()
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                accuracy = (model(images).argmax(1) == labels).float().mean()
            model.train()
            print(step, loss.item(), accuracy.item())


if __name__ == "__main__":
    main()
