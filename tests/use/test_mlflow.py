"""MLflow serves an exported run: the client chooses the model, and bad input gets a 4xx."""

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fl_app.one_run import run as train
from fl_app.schema import ConfigError
from fl_app.use.commands import export as command
from fl_app.use.mlflow_model import features
from fl_app.use.run import FinishedRun, load_run

pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
pandas = pytest.importorskip("pandas", reason="the extra mlflow is not installed")

HOSPITALS = [
    "data=table", "data.file=patients.csv", "data.label=sick", "data.client=hospital",
    "data.missing=most_frequent", "data.standardise=true", "network=mlp",
    "population=by_column", "population.clients=4",
    "strategy=flic", "strategy.cluster_round=2", "strategy.participation=1.0", "rounds=4",
    "client.learning_rate=0.2", "client.threads=1", "records.figures=false",
    "records.report=false", "tracking=none",
]  # fmt: skip
ROWS = [{"age": 30.0, "colour": "red"}, {"age": 70.0, "colour": None}, {"age": 22.0, "colour": "b"}]


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """Return a run in which the hospitals n and s disagree with e and w."""
    root, rows = tmp_path_factory.mktemp("hospitals"), ["age,colour,hospital,sick"]
    for n in range(160):
        age, hospital = 20 + 37 * n % 60, "nesw"[n % 4]
        sick = (age > 50) == (hospital in "ns")
        rows.append(f"{age},{('red', 'blue', '')[n % 3]},{hospital},{'yes' if sick else 'no'}")
    (root / "patients.csv").write_text("\n".join(rows))
    train([*HOSPITALS, f"data.root={root}"], root / "run")
    return load_run(root / "run")


@contextmanager
def _serving(model: Path) -> Iterator[str]:
    """Yield where `mlflow models serve` answers."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    given = ["models", "serve", "-m", str(model), "-p", str(port), "--env-manager", "local"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of uvicorn
    told = {"PATH": path, "PYTHONPROFILEIMPORTTIME": "1"}
    with (model.parent / "imports.txt").open("w") as imports:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *given], cwd=model.parent, stderr=imports,
            start_new_session=True, env=os.environ | told,
        )  # fmt: skip
    try:
        _wait(process, f"http://127.0.0.1:{port}/ping")
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        process.wait(30)


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(600):
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        assert process.poll() is None
        time.sleep(0.2)
    raise AssertionError(f"no answer from {url}")


def _ask(url: str, content: Mapping[str, Any] | str) -> tuple[int, Any]:
    body = content if isinstance(content, str) else json.dumps(content)
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, [
                each["probability of yes"] for each in json.load(reply)["predictions"]
            ]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["message"]


@torch.no_grad()
def _wanted(run: FinishedRun, client: str) -> list[float]:
    found: list[float] = run.model(client=client)(run.preprocess(ROWS)).softmax(1)[:, 1].tolist()
    return found


def _choices(run: FinishedRun) -> Iterator[tuple[Mapping[str, Any], list[float]]]:
    """Yield questions that the parameter or the column answers, and their answers."""
    wanted = {name: _wanted(run, name) for name in "ensw"}
    assert wanted["n"] == wanted["s"]
    assert max(abs(a - b) for a, b in zip(wanted["n"], wanted["e"], strict=True)) > 0.5
    for client, name in (("n", "n"), ("e", "e"), ("3", "w")):  # a name, or the id as a text
        yield {"dataframe_records": ROWS, "params": {"client": client}}, wanted[name]
    rows = [row | {"client": name} for row, name in zip(ROWS, ("e", "s", None), strict=True)]
    of_rows = [wanted[name][row] for row, name in enumerate("esw")]
    yield {"dataframe_records": rows, "params": {"client": "w"}}, of_rows


BAD: list[tuple[Any, str]] = [
    ({"dataframe_records": ROWS}, "client must be given as a column or as a parameter"),
    ({"dataframe_records": ROWS, "params": {"client": "x"}}, "e, n, s, w, got x; use one of these"),
    ({"dataframe_records": ROWS, "params": {"client": 3}}, "Can not safely convert .*int"),
    ({"dataframe_records": [{"age": 3.0}], "params": {"client": "n"}}, r"missing.*'colour'"),
    ({"dataframe_records": [{"age": "old", "colour": "red"}], "params": {"client": "n"}},
     "column 'age' of the given rows must be a number like the others"),
    ({"dataframe_records": [{"colour": "red"}], "params": {"client": "n"}}, r"missing.*'age'"),
    ({"dataframe_records": [], "params": {"client": "n"}}, "missing inputs"),
    ("{", "valid JSON"),
]  # fmt: skip


def test_a_table_is_served(hospitals: FinishedRun, tmp_path: Path) -> None:
    command([str(hospitals.folder), "--format", "mlflow", "--to", str(tmp_path / "model")])
    with _serving(tmp_path / "model") as url:
        for question, answer in _choices(hospitals):
            assert _ask(url, question) == (200, pytest.approx(answer, abs=1e-5))
        for question, reason in BAD:
            status, found = _ask(url, question)
            assert 400 <= status < 500
            assert re.search(reason, found), found
    _check_requirements(tmp_path / "model", (tmp_path / "imports.txt").read_text())


def _check_requirements(model: Path, imports: str) -> None:
    """Assert that the requirements have what the modules of ours in the server need."""
    modules = set(re.findall(r"\| +(fl_app[\w.]*)$", imports, re.MULTILINE))
    assert "fl_app.use.mlflow_served" in modules
    required = {line.split("==")[0] for line in (model / "requirements.txt").read_text().split()}
    packages = packages_distributions()
    for name in _imports(model / "code", modules) - {"fl_app"}:
        assert {each.lower() for each in packages[name]} & required, name


def _imports(code: Path, modules: set[str]) -> set[str]:
    """Return what modules import at their start, without the standard library."""
    found = set()
    for module in modules:
        path = code / module.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.parse(path.read_text()).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {name.partition(".")[0] for name in names}
    return found - sys.stdlib_module_names


@torch.no_grad()
def test_whole_numbers_are_taken_as_numbers(
    hospitals: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR as BARS

    monkeypatch.setenv(BARS.name, "true")
    monkeypatch.delenv(BARS.name)
    command([str(hospitals.folder), "--format", "mlflow", "--to", str(tmp_path / "model")])
    assert not BARS.get()
    rows = pd.DataFrame({"age": [3, 40], "colour": ["red", "blue"]})
    assert rows["age"].dtype.kind == "i"
    found = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(rows, params={"client": "n"})
    inputs = hospitals.preprocess(rows.astype({"age": float}).to_dict("records"))
    wanted = hospitals.model(client="n")(inputs).softmax(1)[:, 1].tolist()
    assert found["probability of yes"].tolist() == pytest.approx(wanted, abs=1e-5)


@torch.no_grad()
def test_images_are_predicted(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.cli import cli

    model, run = tmp_path / "model", load_run(digits_run)
    command([str(digits_run), "--format", "mlflow", "--to", str(model)])
    assert (model / "model_card.md").exists()
    raw = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8)).astype(np.uint8)
    monkeypatch.chdir(tmp_path)
    Path("x.json").write_text(json.dumps({"inputs": raw.tolist(), "params": {"client": 2}}))
    given = ["-m", "model", "-i", "x.json", "-o", "y.json", "-t", "json", "--env-manager", "local"]
    cli(["models", "predict", *given], standalone_mode=False)
    found = json.loads(Path("y.json").read_text())["predictions"]
    wanted = run.model(client=2)(run.preprocess(raw)).argmax(1).tolist()
    assert [each["prediction"] for each in found] == [run.classes[each] for each in wanted]


def test_what_cannot_be_exported_is_refused(digits_run: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ValueError, match="must not exist or be empty"):
        command([str(digits_run), "--format", "mlflow", "--to", str(tmp_path / "full")])
    below_a_file = str(tmp_path / "full" / "x" / "model")
    with pytest.raises(ValueError, match="into which files can be written"):
        command([str(digits_run), "--format", "mlflow", "--to", below_a_file])
    with pytest.raises(ConfigError, match="holds all models; leave --client"):
        command([str(digits_run), "--client", "1", "--format", "mlflow", "--to", "x"])


def test_a_feature_named_client_chooses_no_model(hospitals: FinishedRun) -> None:
    from fl_app.use.mlflow_served import ServedRun

    served = ServedRun()
    served.run, served.models = load_run(hospitals.folder), {}
    text = json.dumps(served.run.serving["preprocess"]).replace('"age"', '"client"')
    served.run.serving = {**served.run.serving, "preprocess": json.loads(text)}
    assert features(served.run) == {"client": "double", "colour": "string"}
    frame = pandas.DataFrame(ROWS).rename(columns={"age": "client"})
    found = served.predict(None, frame, {"client": "e"})
    assert list(found["probability of yes"]) == pytest.approx(_wanted(hospitals, "e"), abs=1e-6)
