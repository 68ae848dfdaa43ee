"""The formats of exported models: each is written, and read again to answer by the file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fl_app.use.run import FinishedRun

Answer = Callable[[Tensor], np.ndarray]
"""Maps inputs (s, ...) to the answers of an exported model."""


def numbers(answers: Tensor) -> np.ndarray:
    """Return answers as float32, since NumPy has no bfloat16."""
    return np.asarray(answers.float().numpy())


def _bare(model: nn.Module) -> nn.Module:
    """Return the network inside of `torch.compile` and data parallelism, which no format holds."""
    while isinstance(inner := getattr(model, "_orig_mod", None), nn.Module) or (
        isinstance(model, nn.DataParallel) and isinstance(inner := model.module, nn.Module)
    ):
        model = inner
    return model


def _onnx(run: FinishedRun, model: nn.Module, inputs: Tensor, file: Path) -> Answer:
    import onnxruntime

    batch = {0: torch.export.Dim("batch", min=1)}
    torch.onnx.export(
        _bare(model), (inputs,), file, dynamo=True, input_names=["input"], output_names=["output"],
        dynamic_shapes=(batch,), external_data=False, verbose=False,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (name,) = (each.name for each in session.get_inputs())
    return lambda given: np.asarray(session.run(None, {name: given.numpy()})[0])


def _torchscript(run: FinishedRun, model: nn.Module, inputs: Tensor, file: Path) -> Answer:
    traced: Any = torch.jit.trace(_bare(model), inputs, check_trace=False)  # type: ignore[no-untyped-call]
    torch.jit.save(traced, str(file))
    loaded = torch.jit.load(str(file))  # type: ignore[no-untyped-call]
    return lambda given: numbers(loaded(given))


def _pt2(run: FinishedRun, model: nn.Module, inputs: Tensor, file: Path) -> Answer:
    batch = {0: torch.export.Dim("batch", min=1)}
    held = torch.export.export(_bare(model), (inputs,), dynamic_shapes=(batch,))
    torch.export.save(held, file)
    loaded = torch.export.load(file).module()
    return lambda given: numbers(loaded(given))


def _safetensors(run: FinishedRun, model: nn.Module, inputs: Tensor, file: Path) -> Answer:
    tensors = {name: each.contiguous().clone() for name, each in model.state_dict().items()}
    save_file(tensors, file)
    loaded = run.network()
    loaded.load_state_dict(load_file(file))
    loaded.eval()
    return lambda given: numbers(loaded(given))


Write = Callable[[FinishedRun, nn.Module, Tensor, Path], Answer]
FORMATS: Mapping[str, tuple[Write, str]] = {
    "onnx": (_onnx, "onnx"),
    "torchscript": (_torchscript, "pt"),
    "pt2": (_pt2, "pt2"),
    "safetensors": (_safetensors, "safetensors"),
}
"""Formats by name: how to write a model and try it again, and the ending of its file."""
