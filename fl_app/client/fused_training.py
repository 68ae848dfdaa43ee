"""Trains a cohort of clients as one batched computation, for a high utilisation of a GPU.

With the small network of one client, a GPU mostly waits for kernel launches. Here the parameters
of all clients are stacked, and each step of SGD computes the next batch of every client at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fl_app.client.stragglers import most
from fl_app.client.training import Settings, autocast, epoch_order, mean_loss

Parameters = dict[str, Tensor]
"""Name to the clients' stacked parameters (m, ...)."""
Step = Callable[[Parameters, Tensor, Tensor, Tensor], tuple[Parameters, Tensor]]


@dataclass(frozen=True)
class BatchSchedule:
    """The samples of every client in every step; a client that has finished has none.

    `index` (steps, m, B) into the concatenated samples of all clients; `present` (steps, m, B) is
    1 for a sample and 0 for padding; `last` (steps, m) is 1 in a client's last epoch.
    """

    index: Tensor
    present: Tensor
    last: Tensor

    def to(self, device: torch.device) -> "BatchSchedule":
        """Return the schedule on a device."""
        return BatchSchedule(*(part.to(device) for part in (self.index, self.present, self.last)))


def can_fuse(module: nn.Module) -> bool:
    """Whether clients can share one computation: no buffers, no dropout, no batch normalisation.

    Batch normalisation has no buffers if it tracks no statistics, and would mix in the padding.
    The stacked parameters are float32, so that none of another precision can be among them.
    """
    apart = (nn.modules.dropout._DropoutNd, nn.RNNBase, _BatchNorm)
    if list(module.buffers()) or any(isinstance(each, apart) for each in module.modules()):
        return False
    return all(each.dtype == torch.float32 for each in module.parameters() if each.requires_grad)


def train_cohort(
    module: nn.Module,
    starts: Tensor,
    images: Sequence[Tensor],
    labels: Sequence[Tensor],
    settings: Settings,
    *,
    generators: Sequence[torch.Generator],
    epochs: Sequence[int] | None = None,
    note: Sequence[list[Tensor]] | None = None,
) -> tuple[Tensor, Tensor]:
    """Train m clients from `starts` (m, d); return their models (m, d) and last losses (m,).

    `images` (s_i, C, H, W) and `labels` (s_i,) can differ in length between clients. Each
    client's batches come from its own generator, as in training alone, and the result is the same
    up to the order of float sums. `epochs` (m,) are those of each client; None: of the settings.
    The loss of each batch is appended to the client's list in `note` (m,), and without an epoch
    that of the received model.
    `module` defines the network: its trainable parameters, in
    order, are the parts of a row of `starts`; its frozen parameters are shared by all clients.
    """
    each_epochs = epochs or [most(settings.epochs)] * len(labels)
    sizes = [len(each) for each in labels]
    schedule = _schedule(sizes, settings.batch_size, each_epochs, generators).to(starts.device)
    samples_of_all = torch.cat(list(images)), torch.cat(list(labels))
    shapes = {name: p.shape for name, p in module.named_parameters() if p.requires_grad}
    cut = torch.split(starts, [shape.numel() for shape in shapes.values()], dim=1)
    first = {
        # aligned, as CUDA needs it: see FlatModule
        name: piece.reshape(len(starts), *shape).clone()
        for (name, shape), piece in zip(shapes.items(), cut, strict=True)
    }
    module.train()
    losses = _descend(_batched(module, settings), first, samples_of_all, schedule, settings, note)
    flat = [piece.reshape(len(starts), shapes[name].numel()) for name, piece in first.items()]
    models = torch.cat(flat, dim=1)
    losses /= torch.tensor(sizes, device=starts.device)
    module.eval()
    for client in (client for client, count in enumerate(each_epochs) if not count):
        own = {name: piece[client] for name, piece in first.items()}
        answer = partial(_answers, module, own)
        losses[client] = mean_loss(answer, images[client], labels[client], settings.precision)
        if note is not None:
            note[client].append(losses[client])
    return models, losses


def _answers(module: nn.Module, parameters: Parameters, x: Tensor) -> Tensor:
    found: Tensor = functional_call(module, parameters, (x,))
    return found


def _batched(module: nn.Module, settings: Settings) -> Step:
    """Return the function for one step: gradients and mean losses (m,) of a batch (m, B, ...)."""

    def loss(parameters: Parameters, x: Tensor, y: Tensor, present: Tensor) -> Tensor:
        with autocast(y.device, settings.precision):
            logits = functional_call(module, parameters, (x,))
        each = functional.cross_entropy(logits.float(), y, reduction="none")
        return each.where(present > 0, 0.0).sum() / present.sum().clamp(min=1)

    step: Step = vmap(grad_and_value(loss))
    return step


@torch.no_grad()
def _descend(
    step: Step,
    parameters: Parameters,
    samples_of_all: tuple[Tensor, Tensor],
    schedule: BatchSchedule,
    settings: Settings,
    note: Sequence[list[Tensor]] | None,
) -> Tensor:
    """Update `parameters` in place by SGD; return the summed losses (m,) of the last epoch."""
    every = []
    images, labels = samples_of_all
    starts = {name: p.clone() for name, p in parameters.items()} if settings.proximal else {}
    velocity = {name: torch.zeros_like(p) for name, p in parameters.items() if settings.momentum}
    total = torch.zeros(schedule.last.shape[1], device=labels.device)
    for index, present, last in zip(schedule.index, schedule.present, schedule.last, strict=True):
        gradients, losses = step(parameters, images[index], labels[index], present)
        count = present.sum(dim=1)
        for name, parameter in parameters.items():
            active = (count > 0).view(-1, *[1] * (parameter.dim() - 1))
            gradient = gradients[name]
            gradient.add_(parameter, alpha=settings.weight_decay)
            if starts:
                gradient.add_(parameter - starts[name], alpha=settings.proximal)
            # for a client that has finished, the velocity has no effect
            if velocity:
                gradient = velocity[name].mul_(settings.momentum).add_(gradient)
            parameter.add_(gradient.where(active, 0.0), alpha=-settings.learning_rate)
        total += (losses * count * last).where(count > 0, 0.0)
        if note is not None:
            every.append(losses)
    for client, kept in enumerate(note or ()):
        trained = schedule.present[:, client].any(dim=1)
        kept.extend(torch.stack(every)[trained, client])
    return total


def _schedule(
    samples: Sequence[int],
    size: int,
    epochs: Sequence[int],
    generators: Sequence[torch.Generator],
) -> BatchSchedule:
    steps = max(n * -(-count // size) for count, n in zip(samples, epochs, strict=True))
    index = torch.zeros((steps, len(samples), size), dtype=torch.long)
    present = torch.zeros((steps, len(samples), size))
    last = torch.zeros((steps, len(samples)))
    before = 0
    parts = zip(samples, epochs, generators, strict=True)
    for client, (count, last_epoch, generator) in enumerate(parts):
        step = 0
        if count:  # the padding is its own, so that no other client's samples reach its gradient
            index[:, client] = before
        for epoch in range(last_epoch):
            for batch in torch.split(epoch_order(count, generator), size):
                index[step, client, : len(batch)] = before + batch
                present[step, client, : len(batch)] = 1
                last[step, client] = epoch == last_epoch - 1
                step += 1
        before += count
    return BatchSchedule(index, present, last)
