"""The page of FLIC's graph with and without contrast."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import contrast


def test_late_looks_of_each_kind_have_a_table_of_their_own() -> None:
    asked = contrast.cases()
    assert len(asked) == len(set(asked))
    looks = {"count": 4, "ari": 1.0, "accuracy": 0.9, "losses": [0.5] * 6}
    found = [
        {**looks, "case": ["late: four rotations", 1.0, True, 0], "looks": [[4, 1.0]] * 6},
        {**looks, "case": ["fitted: four rotations", 0.5, True, 1], "looks": [[1, 0.0]] * 6},
    ]
    assert all(tuple(each["case"]) in asked for each in found)  # type: ignore[arg-type]
    before, late, fitted = "\n".join(contrast.page(found)).split("## Late looks")
    assert "| four rotations | contrast | 0 |" + " 4 (ARI 1.00) |" * 6 in late
    assert "| four rotations | contrast | 1 |" + " 1 (ARI 0.00) |" * 6 in fitted
    assert "ARI 1.00" not in fitted
    assert "ARI 0.00" not in before + late
