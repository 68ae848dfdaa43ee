"""The audit of privacy: it finds planted faults, and no sound setting is above its ledger."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import audit as page
import audit_masks
from audit_cases import FOUR, SAMPLE, Row, of_sample, rows
from audit_fields import (
    EVALUATION,
    FIELDS,
    INTRODUCTION,
    MASKED_SUM,
    NOISE,
    NOTHING,
    PLACEMENT,
    REFUSED,
    TRAINING,
    WANTED,
)
from audit_trials import BATCHES, SAMPLES, WHOLE, Linear, Stored, blank, reply, torn, update
from flwr.common import Code, EvaluateIns, FitIns, GetPropertiesIns, Parameters

from fl_app import client_wiring
from fl_app.client import private_training
from fl_app.client.accountant import Release
from fl_app.client.layer_calls import is_separable
from fl_app.client.learner import Learner
from fl_app.client.mixture import MixtureLearner
from fl_app.client.pending_noise import pending
from fl_app.client.private_losses import SHARED, TOLD
from fl_app.client.sgd import SgdLearner
from fl_app.client_app import FederatedClient
from fl_app.ingress import masked
from fl_app.ingress.evaluations import EvaluationAnswer
from fl_app.ingress.fits import FitAnswer
from fl_app.ingress.introductions import Identity
from fl_app.ingress.placements import PLACE, PlacementAnswer
from fl_app.learner_reports import HELD_OUT, OFFERED, PREFIX, request
from fl_app.masking import stages
from fl_app.params import FlatModule, to_bytes
from fl_app.strategies.trial import LOSSES as TRIAL

HONEST = [each for each in rows() if each.part in ("sample", "client", "sketch", "losses")]
FAULTY = [each for each in rows() if each.part == "fault"]
TRIALS, TWICE = 60, 1000


def _name(each: Row) -> str:
    return each.case.name


def _best(each: Row, trials: int) -> float:
    with each.fault():
        found = each.case.run(trials)
    return max(found.epsilon, found.gaussian if each.gaussian else 0.0)


@pytest.mark.parametrize("each", HONEST, ids=_name)
def test_no_sound_setting_is_above_its_ledger(each: Row) -> None:
    assert _best(each, TRIALS) < each.case.ledger()


@pytest.mark.parametrize("each", FAULTY, ids=_name)
def test_planted_faults_are_found(each: Row) -> None:
    assert _best(each, TWICE if "twice" in each.case.name else TRIALS) > each.case.ledger()


@pytest.mark.parametrize("each", [each for each in rows() if each.part == "none"], ids=_name)
def test_without_privacy_the_attack_is_always_right(each: Row) -> None:
    found = each.case.run(20)
    assert (found.accuracy, found.auc) == (1.0, 1.0)


def test_the_rows_a_page_has_are_read_back(tmp_path: Path) -> None:
    audit = {"epsilon": 1.0, "gaussian": 2.0, "accuracy": 0.625, "auc": 0.75, "trials": 1030}
    found: page.Found = {("one", "masked"): audit, ("sum", "masked"): audit}
    for each in rows():
        doubled = 3.25 if each.part == "beside" else None
        found[each.case.name, each.part] = {"ledger": 1.5, "doubled": doubled, **audit}
    text = "\n".join(page.page(found))
    again = page._written(text)
    assert again.keys() == found.keys()
    assert "\n".join(page.page(again)) == text


def test_one_masked_vector_says_nothing_and_their_sum_all() -> None:
    one, total = audit_masks.audits(20)
    assert 0.1 < one.auc < 0.9
    assert total.auc == 1.0


def test_batches_are_drawn_as_the_ledger_assumes() -> None:
    case = of_sample("", *BATCHES, SAMPLE, FOUR)
    client = client_wiring.client(case.config, 0)
    assert client.plan is not None
    release = client.privacy.release(client.plan)
    assert release is not None
    assert (release.rate, release.steps, client.samples) == (0.1, 10, SAMPLES)
    draw = torch.Generator().manual_seed(3)
    many = Release(release.noise_multiplier, release.rate, 4000)
    batches = [*private_training._batches(SAMPLES, many, draw)]
    sizes = torch.tensor([float(len(each)) for each in batches])
    assert len(batches) == many.steps
    assert 9.8 < sizes.mean() < 10.2
    assert 8.3 < sizes.var() < 9.7  # 9 if each sample is drawn by itself, 0 in shuffled batches
    assert all(len(each) == len(each.unique()) for each in batches[:50])


def test_both_ways_of_clipping_are_tried() -> None:
    assert is_separable(Linear((1, 8, 8), 10))
    assert not is_separable(Stored((1, 8, 8), 10))
    names = {each.case.config.network.path for each in HONEST}
    assert names == {"audit_trials.Linear", "audit_trials.Stored", "audit_lookups.Lookups"}


def test_the_embedding_of_the_audit_has_late_noise() -> None:
    (case,) = (each.case for each in HONEST if "embedding" in each.case.name)
    client = client_wiring.client(case.config, 0)
    flat = client.learner.flat
    assert isinstance(flat, FlatModule)
    with pending(flat, client.learner.settings, torch.Tensor.normal_) as late:
        assert [*late] == [*flat.module.parameters()]


def test_the_page_tells_which_bounds_are_above_their_ledger() -> None:
    audit = {"epsilon": 1.0, "gaussian": 2.0, "accuracy": 0.6, "auc": 0.7, "trials": 30}
    found: page.Found = {("one", "masked"): audit, ("sum", "masked"): audit}
    for each in rows():
        found[each.case.name, each.part] = {"ledger": 1.5, "doubled": None, **audit}
    text = "\n".join(page.page(found))
    gaussian = [each.case.name for each in HONEST if each.gaussian]
    assert f"bounds above the ledger: {', '.join(gaussian)}; 15 of 15 planted faults" in text
    for key in found:
        found[key]["gaussian"] = 1.2
    assert "no bound above its ledger; 0 of 15 planted faults" in "\n".join(page.page(found))


READ: dict[type, dict[str, str | None]] = {
    Identity: {name: name for name in ("client_id", "group", "samples", "malicious", "flower")},
    FitAnswer: {
        "client_id": None, "reports": None, "row": "choice", "model": "model", "norm": "model",
        "samples": "num_examples", "loss": "loss", "seconds": "train_s", "metrics": "fitting",
    },
    EvaluationAnswer: {
        "client_id": None, "community": None, "introduced": None, "accuracy": "accuracy",
        "choice_loss": "choice_loss", "loss": "loss", "samples": "num_examples",
        "attack_success": "attack_success", "table": "table", "metrics": "metric.*",
    },
    PlacementAnswer: {"client_id": None, "losses": "losses"},
}  # fmt: skip
"""The fields that the server reads, and the names under which they leave a client."""
MESSAGES = {
    Identity: INTRODUCTION, FitAnswer: TRAINING, EvaluationAnswer: EVALUATION,
    PlacementAnswer: PLACEMENT,
}  # fmt: skip


def _fields(message: str) -> set[str]:
    return {each.name for each in FIELDS if each.message == message}


@pytest.mark.parametrize("answer", READ)
def test_each_field_that_the_server_reads_is_on_the_page(answer: Any) -> None:
    assert answer.__dataclass_fields__.keys() == READ[answer].keys()
    assert {name for name in READ[answer].values() if name} <= _fields(MESSAGES[answer])


def test_each_report_is_on_the_page_and_refused_with_privacy_or_of_a_trial_with_noise() -> None:
    learners: list[type[Learner]] = [SgdLearner, MixtureLearner]
    told = {name for learner in learners for name in learner.tells} | {HELD_OUT, OFFERED}
    reports = [each for each in FIELDS if each.name.startswith("report.")]
    assert {each.name for each in reports} == {f"report.{name}" for name in told}
    for each in reports:
        way = WANTED if each.name == f"report.{HELD_OUT}" else REFUSED
        assert each.sample_dp == each.local_dp == way


def test_each_field_of_a_secure_sum_that_the_server_reads_is_on_the_page() -> None:
    read = {name for name in vars(masked).keys() & vars(stages).keys() if name.isupper()}
    assert _fields(MASKED_SUM) == {getattr(stages, name) for name in read - {"RECORD"}}


ASKED = {"round": 1, "clip_bound": 1.0, SHARED: True, TOLD: True}
PRIVATE = ("sample_dp", "local_dp")


def _way(kind: str, message: str, name: str) -> str:
    return next(
        getattr(each, kind) for each in FIELDS if each.message == message and each.name == name
    )


@pytest.mark.parametrize("kind", PRIVATE)
def test_a_private_client_sends_no_loss_that_is_not_asked_for(kind: str) -> None:
    case = of_sample("", *WHOLE, f"privacy={kind}")
    client = _client(*case.words)
    assert _way(kind, TRAINING, "loss") == WANTED
    assert "loss" not in reply(case, client, 1).metrics
    assert _way(kind, EVALUATION, "choice_loss") == NOTHING
    ins = EvaluateIns(Parameters([to_bytes(blank(640))], ""), {"round": 1, "choose": True})
    assert "choice_loss" not in client.evaluate(ins).metrics


@pytest.mark.parametrize("kind", PRIVATE)
def test_all_losses_on_training_data_that_a_private_client_sends_have_noise(kind: str) -> None:
    quiet = ("privacy.epsilon=inf",)
    found = []
    for words in (quiet, ("privacy.epsilon=4",)):
        client = _client(f"privacy={kind}", *words)
        models = Parameters([to_bytes(torn(640)), to_bytes(-torn(640))], "")
        fitted = client.fit(FitIns(models, dict(ASKED))).metrics
        placed = client.evaluate(EvaluateIns(models, {**ASKED, PLACE: True}))
        losses = np.frombuffer(placed.metrics["losses"], "<f4")
        assert placed.loss == losses.min()
        trial = client.fit(FitIns(models, {**ASKED, **request({HELD_OUT: TRIAL})})).metrics
        out = np.frombuffer(trial[f"{PREFIX}{HELD_OUT}"], "<f4")
        found.append((fitted["loss"], *losses.tolist(), *out.tolist()))
    exact, noisy = found
    assert all(0 <= loss <= 4 for loss in exact)
    assert all(a != b for a, b in zip(exact, noisy, strict=True))
    for message, name in ((TRAINING, "choice"), (PLACEMENT, "loss"), (PLACEMENT, "losses")):
        assert _way(kind, message, name) == NOISE


def _client(*words: str) -> FederatedClient:
    case = of_sample("", *WHOLE, *words)
    return FederatedClient(client_wiring.client(case.config, 0))


def test_each_field_that_a_client_sends_is_on_the_page() -> None:
    case = of_sample("", *WHOLE, "privacy=local_dp", "privacy.quantile=0.5")
    client = _client(*case.words)
    properties = client.get_properties(GetPropertiesIns({})).properties
    assert set(properties) == _fields(INTRODUCTION)
    given = Parameters([to_bytes(blank(640))], "numpy.ndarray")
    sent = {"model", "num_examples", *client.fit(FitIns(given, dict(ASKED))).metrics}
    assert sent == {each for each in _fields(TRAINING) if not each.startswith("report.")}
    assert len(update(case, client, 1)) == 641

    model = to_bytes(blank(640))
    placed = client.evaluate(EvaluateIns(Parameters([model], ""), {"round": 1, PLACE: True}))
    assert placed.status.code is Code.OK
    assert {"loss", "num_examples", *placed.metrics} == _fields(PLACEMENT)

    backdoor = ("attack=backdoor", "attack.clients=[0]")
    sent = {"loss", "num_examples"}
    for words in (["privacy=none"], backdoor):
        ins = EvaluateIns(Parameters([model], ""), {"round": 1, "choose": False})
        sent |= _client(*words).evaluate(ins).metrics.keys()
    assert sent | {"metric.*", "table"} == _fields(EVALUATION)
