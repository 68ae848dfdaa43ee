"""The same run on the three engines; writes docs/results/engines.md.

    .venv/bin/python benchmarks/engines.py

Compares communities and final models with those of the in-process engine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fl_app.records.models import read_models
from fl_app.types import ENGINES

REPO = Path(__file__).resolve().parent.parent
TABLE = REPO / "docs" / "results" / "engines.md"


def largest_difference(ours: Path, theirs: Path) -> float:
    """Return the largest difference of one parameter between the models of two runs."""
    pairs = zip(read_models(ours), read_models(theirs), strict=True)
    return max(float(np.abs(a[name] - b[name]).max()) for a, b in pairs for name in a)


def main() -> None:
    """Run on every engine, one after another, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", default=["experiment=federation_demo"])
    overrides = parser.parse_args().overrides
    with tempfile.TemporaryDirectory() as top:
        folders = {engine: Path(top) / engine for engine in ENGINES}
        summaries: dict[str, dict[str, Any]] = {}
        for engine, folder in folders.items():
            command = [sys.executable, "-m", "fl_app.main", *overrides, f"engine={engine}"]
            subprocess.run([*command, f"hydra.run.dir={folder}"], check=True)
            summaries[engine] = json.loads((folder / "summary.json").read_text())
        first = folders["inprocess"]
        difference = {e: largest_difference(first, folder) for e, folder in folders.items()}
    lines = [
        "# One run on three engines",
        "",
        f"Written by `benchmarks/engines.py {' '.join(overrides)}`. Each engine is compared with",
        "the in-process engine: whether the clients are in the same communities, and the largest",
        "difference of a parameter of the final models. Seconds are those of all rounds.",
        "",
        "| engine | communities | equal | largest difference | accuracy | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for engine, summary in summaries.items():
        found = summary["communities"]
        same = found["assignment"] == summaries["inprocess"]["communities"]["assignment"]
        lines.append(
            f"| {engine} | {found['sizes']} | {'yes' if same else 'NO'} | "
            f"{difference[engine]:.3g} | {summary['accuracy']['mean']:.4f} | "
            f"{summary['time']['total_s']:.1f} |"
        )
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
