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
from fl_app.extras import installation
from fl_app.own import PROJECT
from fl_app.records.models import FILE as MODELS
from fl_app.records.output_folder import require
from fl_app.records.serving import FILE
from fl_app.use.card import write_card
from fl_app.use.export import default_names, samples
from fl_app.use.predict import answers
from fl_app.use.run import FinishedRun

CLIENT = "client"
"""The column, or the parameter, that chooses the model."""
SCRIPT = """
from mlflow.models import set_model
from fl_app.use.mlflow_served import ServedRun

set_model(ServedRun())
"""
NEEDED = (
    "torch", "torchvision", "numpy", "safetensors", "hydra-core", "omegaconf", "pydantic", "pyyaml",
    "jaxtyping", "pillow", "pandas", "mlflow",
)  # fmt: skip
"""Packages of the served model. Its networks may need torchvision."""
TYPES = {str: "string", float: "double", int: "long"}
"""MLflow's types of answers."""


def save(run: FinishedRun, to: Path) -> None:
    """Write the model into the folder `to`, which must not exist or be empty.

    Raises ValueError for another folder, for one into which nothing can be written, without the
    package mlflow, and for clients whose layers are on their own machines.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"the folder must not exist or be empty, got {to}; choose another")
    require(to)
    try:
        from mlflow import pyfunc
    except ImportError as error:
        raise ValueError(
            f"format mlflow needs a package that is missing ({error}); {installation('mlflow')}"
        ) from error
    if run.clients:
        run.own(min(run.clients))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        _copy_needed(run.folder, folder)
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


def _copy_needed(run: Path, to: Path) -> None:
    """Copy what a served model needs of a run's folder."""
    to.mkdir()
    for name in (FILE, MODELS):
        shutil.copy(run / name, to)
    for name in (PROJECT, CLIENTS):
        if (run / name).is_dir():
            shutil.copytree(run / name, to / name)


def features(run: FinishedRun) -> dict[str, str]:
    """Return the type of each column of the samples; none if they are no table."""
    described = run.serving["preprocess"]
    if "words" in described:
        return {described["column"]: "string"}
    types = {each["name"]: "double" for each in described.get("numbers", ())}
    return types | {each["name"]: "string" for each in described.get("categories", ())}


def _signature(run: FinishedRun) -> Any:
    """Return the inputs, outputs and parameters of the model.

    The client is a text if the clients have names, and otherwise its id.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    of_client = "string" if run.client_names else "long"
    # MLflow refuses whole numbers where decimal ones are declared; the run checks each cell itself
    kinds = {"double": AnyType(), "string": "string"}
    columns = [ColSpec(kinds[kind], name) for name, kind in features(run).items()]
    if columns and CLIENT not in features(run):
        columns.append(ColSpec(of_client, CLIENT, required=False))
    kind = "uint8" if run.preprocess.reads == "images" else run.serving["input_type"]
    inputs = columns or [TensorSpec(np.dtype(kind), (-1, *run.input_shape))]
    shown = answers(run, run.network().eval(), samples(run, 1))
    outputs = [ColSpec(TYPES[type(each[0])], name) for name, each in shown.items()]
    params = ParamSchema([ParamSpec(CLIENT, of_client, None)])
    return ModelSignature(Schema(inputs), Schema(outputs), params)
