"""A client's process loads torch, Flower and what training needs, and nothing of the server's."""

import json
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
NOT_NEEDED = (
    "sklearn", "scipy.stats", "networkx", "community", "sknetwork", "matplotlib", "plotly",
    "jinja2", "rich", "opacus", "dp_accounting", "tensorboardX", "torchvision", "ray",
    "fl_app.server_wiring", "fl_app.strategies", "fl_app.engines", "fl_app.graph", "fl_app.records",
    "fl_app.report",
)  # fmt: skip
PROGRAM = """
import json, sys
import torch, flwr.app, flwr.client, flwr.clientapp, flwr.common
before = set(sys.modules)
from fl_app.client_app import client_fn, to_bytes
imported = set(sys.modules) - before
context = flwr.app.Context(
    run_id=0, node_id=1, node_config={"partition-id": 0}, state=None,
    run_config={"overrides": "network.width=0.25 client.epochs=1"},
)
client = client_fn(context)
start = flwr.common.Parameters([to_bytes(client.local.learner.flat.vector())], "numpy.ndarray")
client.fit(flwr.common.FitIns(start, {"round": 1}))
print(json.dumps([sorted(imported), sorted(set(sys.modules) - before)]))
"""


def test_a_client_loads_nothing_of_the_servers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    imported, trained = map(set, json.loads(done.stdout.splitlines()[-1]))
    assert not imported & set(NOT_NEEDED)
    assert "torch._dynamo" not in trained  # torch's compiler: 1.3 s and 150 MB for each process
    # the digits are scikit-learn's own, and loading them loads SciPy
    assert trained & set(NOT_NEEDED) <= {"sklearn", "scipy.stats"}
