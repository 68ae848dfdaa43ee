"""What is wrong with a user's part is one sentence before the run, found by trying the part."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # where user_parts and state_networks are
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.one_run import resume, run
from fl_app.use.run import load_run

SMALL = ["population=iid", "population.clients=4", "population.train_samples=20",
         "population.test_samples=10", "strategy=fedavg", "strategy.participation=1", "rounds=2",
         "network=mlp", "records.evaluate_every=1"]  # fmt: skip
QUIET = ["records.figures=false", "records.report=false", "tracking=none"]
PEOPLE = [*(each for each in SMALL if "samples" not in each), "~population.draw",
          "population._target_=user_parts.people"]  # fmt: skip
F1 = ["+task.metrics.f1._target_=torchmetrics.classification.MulticlassF1Score"]
ODD = ["attack._target_=user_parts.Odd", "+attack.fault=none"]
LATE = ["strategy=late", "strategy.cluster_round=1"]


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        ("Short", r"a model of shape \(6569,\), which must be 6570 finite numbers"),
        ("Lossless", "loss nan from train, which must be a finite number"),
        ("Failing", "RuntimeError: no luck"),
        ("Percent", "accuracy 70.0, which must be in 0..1, or None"),
        ("Worded", "metric 'f1' as 'high', which must be a number: leave it out where undefined"),
        ("Unnamed", "metric 'dice', which task.metrics must have: give it there, by"),
        ("Listed", r"metric 'f1' as \[0.1, 0.2\], which must be a number"),
        ("Truth", "metric 'f1' as True, which must be a number"),
        ("Uncounted", "samples 0.5 from score, which must be a positive integer"),
        ("Unscored", r"accuracy None, .* in 0..1: return one, or set classifies = False; correct"),
        ("Unclassed", r"accuracy 0\.\d+, which must be None with classifies = False: return it as"),
        ("Pair", "tuple from score, which must return a Score"),
        ("Scaling", "writes into a client's samples"),
        ("Relabelling", "writes into a client's samples"),
        ("Overwriting", "ValueError: .*read-only"),
    ],
)
def test_a_wrong_learner_is_named(learner: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"client.learner must .*parts.{learner} with {said}"):
        load([*SMALL, *F1, f"client.learner=user_parts.{learner}"], also=problems)


def test_a_learner_that_remembers_is_told(caplog: pytest.LogCaptureFixture) -> None:
    load([*SMALL, "client.learner=user_parts.Remembering"], also=problems)
    (told,) = set(caplog.messages)
    assert "training changes the attribute last of the learner, which serves all clients" in told


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("client.learner=user_parts.Collecting", "the attribute models of the class Collecting"),
        ("task.loss._target_=user_parts.Counting", "the attribute calls of the class Counting"),
    ],
)
def test_what_a_class_remembers_is_told(
    given: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    load([*SMALL, given], also=problems)
    (told,) = set(caplog.messages)
    assert f"training changes {said}, which serves all clients" in told


def test_a_learner_that_needs_what_its_method_sends_is_not_tried() -> None:
    load([*SMALL, "client.learner=user_parts.Asking"], also=problems)


def test_a_learner_without_classes_has_its_test_loss_in_the_records(tmp_path: Path) -> None:
    run([*SMALL, *QUIET, "client.learner=user_parts.Embedding"], tmp_path)
    for line in (tmp_path / "rounds.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert len(record["metrics"]["test_loss"]["clients"]) == 4
        assert not record["accuracy"]
        assert not record["rejected"]
    found = load_run(tmp_path)
    assert (found.answers, found.target, found.classes) == ("numbers", "classification", ())
    assert found.labels == tuple("0123456789")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["graph.benign=root"], "graph.benign must be largest, got root: Embedding has"),
        (["masking=secagg"], "masking must be none, got .*: Embedding has classifies = False"),
    ],
)
def test_what_needs_an_accuracy_is_refused_without_classes(given: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load([*SMALL, *given, "client.learner=user_parts.Embedding"], also=problems)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], None),
        (
            ["records.central_test=true"],
            "central_test must be false, got true: the network answers",
        ),
        (
            ["graph.benign=root", "strategy=communities"],
            "benign must be largest, got root: the net",
        ),
    ],
)
def test_the_server_scores_no_answers_that_only_a_learner_can_read(
    given: list[str], said: str | None
) -> None:
    several = ["network._target_=state_networks.several", "~network.hidden",
               "client.learner=user_parts.Reading", "graph.benign=largest"]  # fmt: skip
    with nullcontext() if said is None else pytest.raises(ConfigError, match=said):
        load([*SMALL, *several, *given], also=problems)


@pytest.mark.parametrize("learner", [None, "user_parts.Scalars"])
def test_a_network_with_hidden_state_is_refused_with_any_learner(learner: str | None) -> None:
    given = ["network._target_=state_networks.counting", "~network.hidden"]
    with pytest.raises(ConfigError, match="got the attribute steps of layer '2', which") as found:
        load([*SMALL, *given, f"client.learner={learner or 'null'}"], also=problems)
    assert len(found.value.problems) == 1


def test_a_component_of_a_mixture_with_hidden_state_is_refused() -> None:
    given = ["strategy=fedem", "network=mixture", "network.of=state_networks.counting",
             "~network.settings.hidden", "network.components=2"]  # fmt: skip
    said = r"got the attribute steps of layer 'components.0.2', the attribute steps of layer 'comp"
    with pytest.raises(ConfigError, match=said):
        load([*(each for each in SMALL if each[:7] not in ("strateg", "network")), *given],
             also=problems)  # fmt: skip


def test_a_network_that_does_not_start_finite_is_refused() -> None:
    given = ["network._target_=state_networks.endless", "~network.hidden"]
    with pytest.raises(ConfigError, match=r"start from finite float32 numbers, .* in 1.bias; init"):
        load([*SMALL, *given], also=problems)


@pytest.mark.parametrize("also", [["privacy=sample_dp"], ["attack=minus_grad", *ODD]])
def test_a_network_that_cannot_be_built_is_told_once(also: list[str]) -> None:
    given = ["network._target_=state_networks.unbuilt", "~network.hidden", *also]
    with pytest.raises(ConfigError, match=r"unbuilt with TypeError: no layers") as found:
        load([*SMALL, *given], also=problems)
    assert len(found.value.problems) == 1


def test_a_loss_that_is_not_finite_is_refused() -> None:
    given = ["task.loss._target_=user_parts.Undefined"]
    with pytest.raises(ConfigError, match=r"task.loss must be finite, .*got loss nan with .*parts"):
        load([*SMALL, *given], also=problems)


def test_numbers_of_numpy_and_torch_are_sent_as_numbers(tmp_path: Path) -> None:
    found = {}
    for name, given in (("own", ["client.learner=user_parts.Scalars"]), ("usual", [])):
        run([*SMALL, *QUIET, *given], tmp_path / name)
        lines = (tmp_path / name / "rounds.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        found[name] = last["train_loss"], last["accuracy"]["mean"]
    assert found["own"] == pytest.approx(found["usual"], rel=1e-5)


def test_settings_of_a_network_may_be_paths_and_enums(tmp_path: Path) -> None:
    given = ["network._target_=state_networks.typed", "~network.hidden", "+network.words=words.txt",
             "+network.pool=most", "+network.sides=[2,3]"]  # fmt: skip
    run([*SMALL, *QUIET, *given], tmp_path)
    found = load_run(tmp_path).model(name="community_0")
    assert found(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_clients_that_numbers_name_are_resumed(tmp_path: Path) -> None:
    given = [*PEOPLE, *QUIET, "+population.fault=none", "client.epochs=1"]
    run([*given, "rounds=1"], tmp_path)
    assert load_run(tmp_path).client_names == {k: str(k) for k in range(4)}
    resume(tmp_path, ["rounds=2"])
    assert json.loads((tmp_path / "summary.json").read_text())["rounds"] == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("empty", "`test` must .*at least one sample, of 0..358, got none for client 1"),
        ("negative", "`train` must .*of 0..1437, got -1 for client 0"),
        ("beyond", "`test` must .*of 0..358, got 10000 for client 0"),
        ("mask", r"`train` must .*got an array \(1438,\) of bool for client 0"),
        ("fewer", "`train` must have one entry per client, 4, got 3"),
        ("named", r"`groups` must be whole numbers, got \['a', 'b', 'a'\]"),
        ("fewer names", r"`names` must be 4 different ones, or empty, got \['1', '2'\]"),
        ("equal names", r"`names` must be 4 different ones, or empty, got \['1', '1', '1', '1'\]"),
        ("cut", "`transform` must return a label for each input, got 40 labels for 39 inputs"),
        ("raises", "KeyError: 'ward'"),
        ("pair", "tuple in its place"),
    ],
)
def test_a_split_that_is_none_is_refused(fault: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"population._target_ must return a .*{said}"):
        load([*PEOPLE, f"+population.fault={fault}"], also=problems)


def test_a_data_set_that_fails_is_one_sentence() -> None:
    given = ["data._target_=user_parts.absent", "~data.test_share", "~data.standardise"]
    said = "data._target_ must load the data, got user_parts.absent with FileNotFoundError: no such"
    with pytest.raises(ConfigError, match=said) as found:
        load([*SMALL, *given], also=problems)
    assert len(found.value.problems) == 1


@pytest.mark.parametrize("fault", ["unseeded", "unseeded inputs"])
def test_a_split_that_is_another_one_in_each_process_is_refused(fault: str) -> None:
    said = "population must be the same in every .* call of user_parts.people; draw by numpy"
    with pytest.raises(ConfigError, match=said):
        load([*PEOPLE, f"+population.fault={fault}"], also=problems)


def test_data_that_are_others_in_each_process_are_refused() -> None:
    given = ["data._target_=user_parts.unseeded", "~data.test_share", "~data.standardise"]
    said = "data must be the same in every process .* call of user_parts.unseeded; draw by numpy"
    with pytest.raises(ConfigError, match=said):
        load([*SMALL, *given], also=problems)


@pytest.mark.parametrize("fault", ["lists", "no"])
def test_a_split_of_a_user_is_accepted(fault: str) -> None:
    load([*PEOPLE, f"+population.fault={fault}"], also=problems)


@pytest.mark.parametrize(
    ("distance", "said"),
    [
        ("negative", "a negative number"),
        ("one_way", "another number in the other direction"),
        ("near", "a number above 0 for a model and itself"),
        ("one_row", r"shape \(3,\) for 3 models and the same"),
        ("undefined", "a number that is not finite"),
        ("of_two", "TypeError: of_two"),
        ("writing", "ValueError: output array is read-only"),
    ],
)
def test_a_distance_that_breaks_a_rule_is_refused(distance: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"similarity must be .*parts.{distance} with {said}"):
        load([*SMALL, *LATE, f"strategy.similarity=user_parts.{distance}"], also=problems)


def test_a_distance_of_a_user_is_accepted() -> None:
    load([*SMALL, *LATE, "strategy.similarity=user_parts.apart"], also=problems)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("writes", "attack must leave the samples of a client as they are, got user_parts.Odd"),
        ("fewer", r"attack must be able to .*inputs \(1, 1, 8, 8\) and 2 labels"),
        ("raises", "attack must be able to .*KeyError: 'ward'"),
        ("writes into others", "attack must be able to .* assignment destination is read-only"),
        ("short", r"attack must be able to .*an update \(6569,\) of float32 for one of \(6570,\)"),
    ],
)
def test_an_attack_with_a_mistake_is_refused(fault: str, said: str) -> None:
    given = ["attack=minus_grad", "attack._target_=user_parts.Odd", f"+attack.fault='{fault}'"]
    with pytest.raises(ConfigError, match=said) as found:
        load([*SMALL, *given], also=problems)
    assert len(found.value.problems) == 1


@pytest.mark.parametrize("fault", ["no", "twice"])
def test_an_attack_of_a_user_is_accepted(fault: str) -> None:
    given = ["attack=minus_grad", "attack._target_=user_parts.Odd", f"+attack.fault={fault}"]
    load([*SMALL, *given], also=problems)
