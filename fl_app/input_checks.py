"""Whether a network takes the inputs of the data, found by giving it some of them."""

import inspect
from collections.abc import Iterator
from logging import getLogger

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.data.datasets import Dataset
from fl_app.hidden_state import alike, answers
from fl_app.reasons import reason_of
from fl_app.rng import global_torch_seed
from fl_app.schema import Target

log = getLogger(__name__)
FIELDS = 16
"""Tokens of a sample up to which each may have an embedding of its own."""


def check_inputs(module: nn.Module, net: Target, data: Dataset) -> None:
    """Raise ValueError for a network that fails on some samples, or that writes into them."""
    for inputs, sample in tried(data):
        version = inputs._version
        try:
            with torch.no_grad(), global_torch_seed(0):
                module.eval()(inputs)
        except Exception as error:  # a user's layer can raise anything
            raise ValueError(
                f"network must take inputs of shape {tuple(inputs.shape)}, {inputs.dtype} in "
                f"{inputs.min():g}..{inputs.max():g}, as {sample} of {data.name}, got {net.path} "
                f"with {reason_of(error)}; {_remedy(module, inputs, data)}"
            ) from error
        if inputs._version != version:
            raise ValueError(
                f"network must leave its inputs as they are, got {net.path}, which writes into "
                "them and so would change a client's samples; remove inplace=True from its first "
                "layer, or let it change a copy"
            )
    _warn_of_draws(module, inputs)


def _warn_of_draws(module: nn.Module, inputs: Tensor) -> None:
    """Log that answers in evaluation mode depend on what is drawn, as by layers made in forward."""
    if not alike(*(answers(module, inputs, seed=seed) for seed in (0, 1))):
        log.warning(
            "the network answers the same samples otherwise each time in evaluation mode, so that "
            "scores vary: create its layers in the constructor, and draw only in training mode"
        )


def tried(data: Dataset) -> Iterator[tuple[Tensor, str]]:
    """Yield the inputs of samples, and which these are: any, or those with extreme tokens.

    One token without an embedding lets its client fail in every round.
    """
    if not data.tokens:
        yield data.train(np.arange(min(2, len(data.train_labels))))[0], "the first samples"
        return
    for kind, images, of in (
        ("training", data.train_images, data.train), ("test", data.test_images, data.test)
    ):  # fmt: skip
        if not len(images):
            continue
        for sample in _extreme(images.reshape(len(images), -1)):
            yield of(np.array([sample, sample]))[0], f"sample {sample} of the {kind} data"


def _extreme(tokens: np.ndarray) -> list[int]:
    """Return samples (N, length) with the least and largest token, and those of each field.

    A few fields, such as a user and an item, can have an embedding each.
    """
    found = [tokens.min(axis=1).argmin(), tokens.max(axis=1).argmax()]
    if tokens.shape[1] <= FIELDS:
        found += [*tokens.argmin(axis=0), *tokens.argmax(axis=0)]
    return list(dict.fromkeys(map(int, found)))


def _remedy(module: nn.Module, inputs: Tensor, data: Dataset) -> str:
    """Return what to do about inputs that a network does not take."""
    if _inputs(module) > 1:
        return "let forward take one tensor with all features, and separate them there"
    kinds = {each.dtype for each in module.parameters() if each.is_floating_point()}
    if not data.tokens and kinds and torch.float32 not in kinds:
        precision = str(kinds.pop()).removeprefix("torch.")
        return f"let forward convert them to {precision}, and its answers to float32"
    embeds = any(isinstance(each, nn.Embedding | nn.EmbeddingBag) for each in module.modules())
    if not data.tokens and embeds and data.train_images.dtype == np.uint8:
        return "bytes are pixels; save tokens as int64"
    if not data.tokens:
        return "let forward take one tensor of this shape, or use other data"
    if not embeds:
        return "integers are tokens; convert pixels to uint8, other numbers to float32"
    if inputs.min() < 0:
        return "number the tokens from 0"
    return f"an embedding needs {int(inputs.max()) + 1} rows (network.vocabulary)"


def _inputs(module: nn.Module) -> int:
    """Return how many arguments `forward` must be given."""
    try:
        given = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # a compiled function may not tell its own
        return 1
    return sum(
        each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in given
    )
