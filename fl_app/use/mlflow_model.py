"""`fl-app export --format mlflow`: one MLflow model with all models of a run, chosen by client."""

import shutil
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import fl_app
from fl_app.client.local_state import CLIENTS
from fl_app.own import PROJECT
from fl_app.records.models import FILE as MODELS
from fl_app.records.serving import FILE
from fl_app.use.card import write_card
from fl_app.use.export import default_names
from fl_app.use.run import FinishedRun

CLIENT = "client"
"""The column, or the parameter, that chooses the model."""
NO_CLIENT = -1
SCRIPT = """
from mlflow.models import set_model
from fl_app.use.mlflow_served import ServedRun

set_model(ServedRun())
"""
NEEDED = ("torch", "numpy", "safetensors", "hydra-core", "pydantic", "pillow", "mlflow")


def save(run: FinishedRun, to: Path) -> None:
    """Write the model into the folder `to`, which must not exist or be empty.

    Raises ValueError for another folder and without the package mlflow.
    """
    try:
        from mlflow import pyfunc
    except ImportError as error:
        raise ValueError(
            f"format mlflow needs a package that is missing ({error}); install the extra mlflow of "
            "fl-app"
        ) from error
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"the folder must not exist or be empty, got {to}; choose another")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        folder.mkdir()
        for name in (FILE, MODELS):
            shutil.copy(run.folder / name, folder)
        for name in (PROJECT, CLIENTS):
            if (run.folder / name).is_dir():
                shutil.copytree(run.folder / name, folder / name)
        script = Path(place) / "model.py"
        script.write_text(SCRIPT)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow wants type hints beside the signature
            pyfunc.save_model(
                str(to),
                python_model=str(script),
                artifacts={"run": str(folder)},
                signature=_signature(run),
                pip_requirements=[f"{name}=={version(name)}" for name in NEEDED],
                code_paths=[str(Path(fl_app.__file__).parent)],
            )
    write_card(run, to, [(name, "all in one", 0.0) for name in default_names(run)])


def _signature(run: FinishedRun) -> Any:
    """Return the inputs and parameters of the model."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

    params = ParamSchema([ParamSpec(CLIENT, "long", NO_CLIENT)])
    described = run.serving["preprocess"]
    columns: list[Any] = []
    if "numbers" in described:  # a table
        columns = [
            ColSpec("double", each["name"], required=each["fill"] is None)
            for each in described["numbers"]
        ]
        columns += [
            ColSpec("string", each["name"], required=each["usual"] is None)
            for each in described["categories"]
        ]
    elif "words" in described:
        columns = [ColSpec("string", described["column"])]
    if columns:
        columns.append(ColSpec("long", CLIENT, required=False))
        return ModelSignature(inputs=Schema(columns), params=params)
    kind = "uint8" if run.preprocess.reads == "images" else run.serving["input_type"]
    tensor = TensorSpec(np.dtype(kind), (-1, *run.input_shape))
    return ModelSignature(inputs=Schema([tensor]), params=params)
