"""What the tables of faults say of a run that went on by itself."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from continued import ended, same_models

from fl_app.records import run_state
from fl_app.records.run_state import RunState


def test_it_waits_for_the_end_and_compares_the_models(tmp_path):
    folder, waited = tmp_path / "cut", list[str]()
    for name, models in (("plain", b"same"), ("other", b"else"), ("cut", b"same")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "models.safetensors").write_bytes(models)
    (folder / "summary.json").write_text(json.dumps({"status": "completed", "rounds": 4}))
    run_state.write(folder, RunState(7, "rounds=4", 5, restarts=1))

    def until(what, found):
        waited.append(what)
        assert not found()
        run_state.finish(folder)
        assert found()

    assert ended(folder, until) == ("completed", "4 rounds, submitted again 1 times")
    assert waited == ["the end of cut"]
    assert same_models(folder, "plain").endswith("True")
    assert same_models(folder, "other").endswith("False")
