"""Local training and evaluation of one model on one client's tensors."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Score:
    """Mean cross-entropy and share of right answers in [0, 1] over `samples` samples."""

    loss: float
    accuracy: float
    samples: int


def train(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    precision: Precision,
    generator: torch.Generator,
) -> float:
    """Train `module` in place by mini-batch SGD and return the last epoch's mean loss.

    `images` (s, C, H, W) and `labels` (s,) live on the module's device; `generator` (CPU)
    orders the samples of each epoch anew. Zero epochs change nothing and give NaN-free 0.0.
    The local solver of FedAvg: McMahan et al., AISTATS 2017, algorithm 1 (ClientUpdate).
    """
    module.train()
    optimiser = torch.optim.SGD(
        module.parameters(),
        lr=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        fused=True,
    )
    total = torch.zeros((), device=labels.device)
    for _ in range(epochs):
        total.zero_()
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        for batch in torch.split(order, batch_size):
            optimiser.zero_grad()
            with torch.autocast(labels.device.type, torch.bfloat16, enabled=precision == "bf16"):
                loss = functional.cross_entropy(module(images[batch]), labels[batch])
            torch.autograd.backward(loss)
            optimiser.step()
            total += loss.detach() * len(batch)
    return float(total) / len(labels)


@torch.no_grad()
def evaluate(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    precision: Precision,
    batch_size: int = 500,
) -> Score:
    """Return the score of `module` on `images` (s, C, H, W) and `labels` (s,), s >= 1."""
    module.eval()
    loss = torch.zeros((), device=labels.device)
    right = torch.zeros((), device=labels.device, dtype=torch.long)
    for x, y in zip(*(torch.split(part, batch_size) for part in (images, labels)), strict=True):
        with torch.autocast(y.device.type, torch.bfloat16, enabled=precision == "bf16"):
            logits = module(x)
        loss += functional.cross_entropy(logits.float(), y, reduction="sum")
        right += (logits.argmax(1) == y).sum()
    return Score(float(loss) / len(labels), int(right) / len(labels), len(labels))
