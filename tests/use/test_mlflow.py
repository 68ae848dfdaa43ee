"""MLflow serves an exported run: the client chooses the model, and bad input gets a 4xx."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fl_app.use.commands import export as command
from fl_app.use.run import load_run

mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")


@contextmanager
def _serving(model: Path) -> Iterator[str]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    given = ["models", "serve", "-m", str(model), "-p", str(port), "--env-manager", "local"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of uvicorn
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *given],
        start_new_session=True, env=os.environ | {"PATH": path},
    )  # fmt: skip
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5)
                break
            except OSError:
                assert server.poll() is None
                time.sleep(1)
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)


def _ask(url: str, content: dict[str, Any]) -> tuple[int, Any]:
    request = urllib.request.Request(
        url, json.dumps(content).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@torch.no_grad()
def test_a_table_is_served(table_run: Path, tmp_path: Path) -> None:
    command([str(table_run), "--format", "mlflow", "--to", str(tmp_path / "model")])
    run = load_run(table_run)
    rows = [{"age": 30.0, "pressure": None, "colour": "red"},
            {"age": 70.0, "pressure": 120.5, "colour": "blue"}]  # fmt: skip
    wanted = run.model(client=1)(run.preprocess(rows)).softmax(1)[:, 1].tolist()
    with _serving(tmp_path / "model") as url:
        status, found = _ask(url, {"dataframe_records": rows, "params": {"client": 1}})
        assert status == 200
        shown = [each["probability of yes"] for each in found["predictions"]]
        assert shown == pytest.approx(wanted, abs=1e-5)
        by_row = [row | {"client": number} for number, row in enumerate(rows)]
        assert _ask(url, {"dataframe_records": by_row})[0] == 200
        for bad in (
            {"dataframe_records": rows},
            {"dataframe_records": rows, "params": {"client": 99}},
            {"dataframe_records": [{"age": 3.0}], "params": {"client": 1}},
        ):
            status, found = _ask(url, bad)
            assert 400 <= status < 500, found
        assert "client" in _ask(url, {"dataframe_records": rows})[1]["message"]


@torch.no_grad()
def test_images_are_predicted(digits_run: Path, tmp_path: Path) -> None:
    command([str(digits_run), "--format", "mlflow", "--to", str(tmp_path / "model")])
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    raw = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8)).astype(np.uint8)
    found = model.predict(raw, params={"client": 2})
    run = load_run(digits_run)
    wanted = run.model(client=2)(run.preprocess(raw)).argmax(1).tolist()
    assert found["prediction"].tolist() == [run.classes[each] for each in wanted]
    assert (tmp_path / "model" / "model_card.md").exists()
    with pytest.raises(ValueError, match="must not exist or be empty"):
        command([str(digits_run), "--format", "mlflow", "--to", str(tmp_path / "model")])
