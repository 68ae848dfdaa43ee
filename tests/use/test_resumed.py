"""A resumed run, also with more clients, serves what it evaluated last."""

import shutil
from pathlib import Path

import pytest
import yaml

from fl_app import former_form, one_run, resumed_run, server_wiring
from fl_app.composition import compose
from fl_app.config import ConfigError, load
from fl_app.data.datasets import DataError
from fl_app.use.evaluate import evaluate
from fl_app.use.run import load_run
from fl_app.wiring import population

TINY = ["rounds=2", "population.clients=4", "population.groups=2", "population.train_samples=40",
        "population.test_samples=20", "network.width=0.25", "strategy.participation=0.5",
        "records.figures=false", "records.report=false", "tracking=none",
        "client.threads=1"]  # fmt: skip


@pytest.mark.parametrize("name", ["ifca", "communities_wnn"])
def test_more_rounds_and_clients_are_served(name: str, tmp_path: Path) -> None:
    given = ["strategy.restarts=0"] if name == "ifca" else []
    one_run.run([f"strategy={name}", *given, *TINY], tmp_path)
    one_run.resume(tmp_path, ["rounds=4", "population.clients=6"])
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["population"]["clients"] == 6
    found = evaluate(tmp_path, [])
    assert found["recorded"] == {"round": 4, "largest_difference": 0.0}
    clients = load_run(tmp_path).clients
    assert sorted(clients) == list(range(6))
    one_run.resume(tmp_path, [])  # it has nothing to do, and forgets no choice
    assert load_run(tmp_path).clients == clients


POPULATIONS = {
    "iid": False, "label_swap": False, "majority_class": False, "noise": False, "rotation": False,
    "own": False, "dirichlet": True, "dirichlet_rotation": True, "quantity_skew": True,
    "non_iid": True, "half_iid": True,
}  # fmt: skip
"""Whether clients get other samples although the number of samples for each is given."""


@pytest.mark.parametrize("samples", [20, None])
@pytest.mark.parametrize("name", POPULATIONS)
def test_more_clients_are_refused_if_those_of_the_run_would_get_other_samples(
    name: str, samples: int | None, tmp_path: Path
) -> None:
    words = ["data=digits", f"population={name}", "population.clients=3"]
    if name != "own":
        given = "null" if samples is None else str(samples)
        words += [f"population.train_samples={given}", f"population.test_samples={given}"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(load(words).resolved))
    shared = name != "own"
    assert resumed_run.clients_to_keep(tmp_path) == (3 if shared else None)
    more = load([*words, "population.clients=4"])
    if POPULATIONS[name] or (samples is None and shared):
        with pytest.raises(ConfigError, match=r"must stay 3 in this run, got 4: .*client \d+ "):
            resumed_run._check_split(more, tmp_path, population(more))
    else:
        resumed_run._check_split(more, tmp_path, population(more))
    resumed_run._check_split(load(words), tmp_path, population(load(words)))


def test_test_samples_that_change_with_the_number_of_clients_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["data=digits", "population=iid", "population.train_samples=9"]
    former = load([*words, "population.clients=3"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(former.resolved))
    more = load([*words, "population.clients=4"])
    resumed_run._check_split(more, tmp_path, population(more))
    assert "with 4 clients instead of 3, client 0 keeps 89 of its 119 test samples" in caplog.text


def test_a_run_that_stopped_after_its_evaluation_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    from fl_app.use.commands import evaluate as command

    one_run.run(["strategy=fedavg", *TINY], tmp_path)
    serving = (tmp_path / "serving.json").read_text()
    (tmp_path / "serving.json").write_text(serving.replace('"round": 2', '"round": 3'))
    command([str(tmp_path)])
    assert "the last evaluation was after round 2, and the models are those after round 3" in (
        capsys.readouterr().out
    )


WARDS = ["data=table", "data.label=sick", "data.client=ward", "data.standardise=true",
         "network=mlp", "population=by_column", "population.clients=2", "strategy=fedavg",
         "rounds=1", "strategy.participation=1.0", *TINY[-4:]]  # fmt: skip


def _wards(root: Path, **mean: int) -> None:
    rows = [f"{centre + each % 20},{'uv'[each % 2]},{ward},{('no', 'yes')[each % 20 > 9]}"
            for ward, centre in mean.items() for each in range(40)]  # fmt: skip
    (root / "points.csv").write_text("\n".join(["age,kind,ward,sick", *rows]) + "\n")


@pytest.fixture(scope="module")
def wards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on the rows of two wards, beside them."""
    root = tmp_path_factory.mktemp("wards")
    _wards(root, A=20, B=30)
    one_run.run([*WARDS, f"data.root={root}"], root / "run")
    return root / "run"


def test_the_data_keep_their_form_when_a_client_of_another_range_joins(
    wards: Path, tmp_path: Path
) -> None:
    shutil.copytree(wards, tmp_path / "run")
    (tmp_path / "run" / "serving.json").unlink()  # as if it had been killed
    _wards(tmp_path, A=20, B=30, C=900)
    changes = [f"data.root={tmp_path}", "population.clients=3", "rounds=2"]
    one_run.resume(tmp_path / "run", changes)
    before, after = (load_run(each).serving["preprocess"] for each in (wards, tmp_path / "run"))
    assert after == before
    assert evaluate(tmp_path / "run", [])["recorded"] == {"round": 2, "largest_difference": 0.0}
    assert yaml.safe_load((tmp_path / "run" / "overrides.yaml").read_text())[-3:] == changes


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("network.hidden=[3]", r"must have \d+ parameters, .*, got \d+; resume with the network"),
        ("data.standardise=false", r"data\.standardise must stay .* true, got false"),
        ("data.missing=mean", r"data\.missing must stay .* refuse, got mean; leave it, or start"),
    ],
)
def test_models_that_do_not_fit_are_refused_before_anything_is_changed(
    change: str, told: str, wards: Path
) -> None:
    before = {path: path.read_bytes() for path in wards.iterdir() if path.is_file()}
    with pytest.raises(ConfigError, match=told):
        one_run.resume(wards, [change, "rounds=2"])
    assert {path: path.read_bytes() for path in before} == before


def test_a_setting_that_the_kept_form_overrides_is_refused_in_an_evaluation(wards: Path) -> None:
    with pytest.raises(DataError, match=r"data\.missing must stay .* refuse, got median"):
        evaluate(wards, ["data.missing=median"])


def test_a_server_that_finds_another_form_begins_nothing(wards: Path, tmp_path: Path) -> None:
    shutil.copytree(wards, tmp_path / "run")
    _wards(tmp_path, A=20, B=90)
    where = [f"data.root={tmp_path}", f"records.folder={tmp_path / 'run'}", "records.resume=true"]
    with pytest.raises(DataError, match=r"preprocess\.numbers\.age\.mean \d.*; restore the data"):
        server_wiring.server(load([*WARDS, *where]))


def test_only_what_the_rows_of_the_server_decide_is_kept(wards: Path) -> None:
    trees = [compose(["data=arrays", "population=iid"]), compose(["data=table", "population=own"]),
             compose(["data=digits", "population=iid"])]  # fmt: skip
    assert [former_form.settings(wards, tree) for tree in trees] == [{"classes": 2}, {}, {}]
