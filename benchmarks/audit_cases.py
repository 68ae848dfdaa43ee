"""The rows of the audit: every setting of privacy, and the faults that it must find."""

from dataclasses import dataclass, replace
from typing import Literal

import audit_faults as faults
from audit_lookups import certain_word
from audit_trials import (
    BATCHES,
    SAMPLES,
    SIZE,
    WHOLE,
    Case,
    Seen,
    blank,
    certain,
    choice,
    held_out_losses,
    loss,
    losses,
    mislabelled,
    scaled,
    sketch,
    torn,
    update,
    with_samples,
)

from fl_app.client.private_losses import SHARED, TOLD

MANY, FEW = 6000, 1000
"""Trials of each kind: with noise, and without."""
SAMPLE, LOCAL = "privacy=sample_dp", "privacy=local_dp"
ONE, FOUR, TEN, CLIPPED = (f"privacy.epsilon={each}" for each in (1, 4, 10, "inf"))
LONG = "client.learning_rate=1"
"""With it the update of a client of one kind of samples is longer than the clip bound."""
JUST_LONG, JUST_SHORT = "client.learning_rate=0.0213", 0.98 * SIZE
"""With it the update from samples of SIZE is just longer than 1, from smaller ones just shorter."""
MOST = "privacy.loss_share=0.9"
"""With it an answer costs most of the budget, so that an attack on it can prove the most."""
MASKED = (
    "strategy=secure_flic", "masking=secagg", *WHOLE, "strategy.cluster_round=2", "rounds=3",
    "population.clients=6", "population.test_samples=10", "engine.largest_update=null",
    "engine.clip_update=null", "engine.place_newcomers=false",
)  # fmt: skip
"""A run whose clients train once, release their sketches, and train in communities."""
KMEANS = (
    "data=digits", "population=iid", "population.clients=4",
    f"population.train_samples={SAMPLES}", "population.test_samples=20", "strategy=kmeans",
    "network=centroids", "network.k=3",
)  # fmt: skip


def of_sample(
    name: str, *words: str, rounds: int = 1, seen: Seen = update, copies: int = 1
) -> Case:
    """Return a case whose canary is one sample: it is in the data, or a black image is."""
    return Case(
        name=name, words=words, rounds=rounds, seen=seen, start=certain,
        inside=with_samples(SIZE, copies=copies), outside=with_samples(0.0, copies=copies),
    )  # fmt: skip


def of_word(name: str, *words: str) -> Case:
    """Return a case whose canary looks up a row of an embedding in four steps on all samples."""
    own = "network._target_=audit_lookups.Lookups", "client.epochs=4"
    return replace(of_sample(name, *WHOLE, SAMPLE, FOUR, *own, *words), start=certain_word)


def of_mistake(name: str, *words: str, rounds: int = 1) -> Case:
    """Return a case whose canary is an ordinary sample under a wrong class."""
    return Case(
        name=name, words=words, rounds=rounds, seen=update, start=blank,
        inside=mislabelled(present=True), outside=mislabelled(present=False),
    )  # fmt: skip


def of_losses(name: str, *words: str, seen: Seen, copies: int = 1) -> Case:
    """Return a case of losses alone: those of the canary are at the bound, or 0.

    Of the models that it gets, a newcomer tells all losses, in a run whose method asks for no
    others; else a client tells that of one, or which of two is less.
    """
    asked = () if seen is losses else ((SHARED, True), (TOLD, seen is loss))
    return Case(
        name=name, words=words, seen=seen, start=torn, of_losses=True,
        task=(("clip_bound", 1.0), *asked),
        inside=with_samples(SIZE, copies=copies), outside=with_samples(-SIZE, copies=copies),
    )  # fmt: skip


def of_value(name: str, *words: str) -> Case:
    """Return a case in which one sample has one value or the opposite one."""
    return Case(
        name=name, words=words, seen=update, start=blank,
        inside=with_samples(SIZE), outside=with_samples(-SIZE),
    )  # fmt: skip


def of_statistics(*words: str) -> Case:
    """Return a case in which one sample changes how all others are scaled."""
    return Case(
        name="`sample_dp`: inputs scaled by the client's own samples (refused)", words=words,
        seen=update, start=blank, inside=scaled(255), outside=scaled(100),
    )  # fmt: skip


def of_client(name: str, *words: str, rounds: int = 1, other: float = -SIZE) -> Case:
    """Return a case in which all data of a client are of one kind or the opposite one."""
    return Case(
        name=name, words=words, rounds=rounds, seen=update, start=blank,
        inside=with_samples(SIZE, copies=SAMPLES), outside=with_samples(other, copies=SAMPLES),
    )  # fmt: skip


def of_sketch(name: str, *words: str) -> Case:
    """Return a case of the one sketch of a client, all of whose data are of one kind or another."""
    return replace(of_client(name, *MASKED, *words), seen=sketch)


def of_point() -> Case:
    """Return a case of federated k-means whose canary is one far point."""
    return Case(
        name="`strategy=kmeans`: one far point", words=(), base=KMEANS, seen=update, start=blank,
        inside=with_samples(SIZE), outside=with_samples(0.0),
        task=(("steps", 1), ("tolerance", 0.0), ("own", False)),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case with its number of trials, and what its ledger is about.

    `gaussian`: what leaves has Gaussian noise and nothing else is drawn. `fault` is planted while
    the trials run.
    """

    case: Case
    part: Literal["none", "sample", "client", "sketch", "losses", "beside", "fault"]
    trials: int = MANY
    gaussian: bool = False
    fault: faults.Fault = faults.sound


def rows() -> list[Row]:
    """Return all rows in the order of the page."""
    promised = *_of_samples(), *_of_clients(), *_of_sketches(), *_of_losses()
    return [*_without(), *promised, *_beside(), *_faulty()]


def _without() -> list[Row]:
    cases = [
        of_sample("`none`: the canary", *BATCHES),
        of_mistake("`none`: an ordinary sample under a wrong class", *BATCHES),
        of_client("`none`: all data of a client", *WHOLE),
        of_point(),
        of_sample("`sample_dp`, epsilon inf (clipping alone): the canary", *WHOLE, SAMPLE, CLIPPED),
    ]
    return [Row(case=case, part="none", trials=FEW) for case in cases]


def _of_samples() -> list[Row]:
    each = "privacy=sample_dp_round", ONE
    own = "network._target_=audit_trials.Stored"
    whole = [
        of_sample("epsilon 4, one step on all samples", *WHOLE, SAMPLE, FOUR),
        of_sample("epsilon 4, one step, gradients stored by Opacus", *WHOLE, SAMPLE, FOUR, own),
        of_sample("epsilon 10, one step on all samples", *WHOLE, SAMPLE, TEN),
        of_sample("`sample_dp_round`, epsilon 1, 3 rounds", *WHOLE, *each, rounds=3),
        of_word("epsilon 4, four steps, a row of an embedding"),
    ]
    drawn = [
        of_sample("epsilon 4, drawn batches of a tenth", *BATCHES, SAMPLE, FOUR),
        of_sample("epsilon 4, drawn batches, 3 rounds", *BATCHES, SAMPLE, FOUR, rounds=3),
        of_mistake(
            "epsilon 4, drawn batches, an ordinary sample under a wrong class",
            *BATCHES,
            SAMPLE,
            FOUR,
        ),
    ]
    return [Row(case=case, part="sample", gaussian=case in whole) for case in (*whole, *drawn)]


def _of_clients() -> list[Row]:
    local, each = (*WHOLE, LOCAL, LONG), "privacy=local_dp_round"
    just = "privacy.quantile=0.5", JUST_LONG
    cases = [
        of_client("epsilon 4", *local, FOUR),
        of_client("epsilon 10", *local, TEN),
        of_client("epsilon 4, 5 rounds", *local, FOUR, rounds=5),
        of_client("`local_dp_round`, epsilon 1, 5 rounds", *WHOLE, each, LONG, ONE, rounds=5),
        of_client("epsilon 4, adaptive clip bound", *WHOLE, LOCAL, FOUR, *just, other=-JUST_SHORT),
    ]
    return [Row(case=case, part="client", gaussian=True) for case in cases]


def _of_sketches() -> list[Row]:
    cases = [
        of_sketch("the default budget"),
        of_sketch("epsilon 10", "strategy.epsilon=10"),
        of_sketch("epsilon 4", "strategy.epsilon=4"),
    ]
    return [Row(case=case, part="sketch", gaussian=True) for case in cases]


def _of_losses() -> list[Row]:
    found = []
    for kind, copies in ((SAMPLE, 1), (LOCAL, SAMPLES)):
        name, words = kind.removeprefix("privacy="), (*WHOLE, kind, FOUR, MOST)
        told = {"the training loss": loss, "the choice of a model": choice,
                "a newcomer's losses": losses,
                "losses on held-out samples": held_out_losses}  # fmt: skip
        for what, seen in told.items():
            case = of_losses(f"`{name}`: {what}", *words, seen=seen, copies=copies)
            found.append(Row(case=case, part="losses", trials=FEW, gaussian=seen is not choice))
    return found


def _beside() -> list[Row]:
    sample = *WHOLE, SAMPLE, FOUR
    value = of_value("`sample_dp`: the update, if a sample has another value", *sample)
    return [Row(case=value, part="beside", gaussian=True)]


def _faulty() -> list[Row]:
    sample, local = (*WHOLE, SAMPLE), (*WHOLE, LOCAL, LONG)
    twice = of_sample("`sample_dp`: a sample used twice", *sample, FOUR, copies=2)
    return [
        _fault(of_sample("`sample_dp`: a tenth of the noise", *sample, ONE),
               faults.weak_sample_noise),
        _fault(of_word("`sample_dp`: rows of an embedding without their last noise"),
               faults.noise_left_out),
        _fault(of_sample("`sample_dp`: gradients not clipped", *sample, ONE),
               faults.unclipped_samples),
        _fault(of_sample("`sample_dp`: all samples in each batch", *BATCHES, SAMPLE, ONE),
               faults.all_in_each_batch),
        _fault(twice, faults.sound),
        _fault(of_statistics(*sample, FOUR), faults.sound),
        _fault(of_client("`local_dp`: a tenth of the noise", *local, ONE),
               faults.weak_update_noise),
        _fault(of_client("`local_dp`: updates not clipped", *local, ONE), faults.unclipped_update),
        _fault(of_sketch("`secure_flic`: a tenth of the noise", "strategy.epsilon=1"),
               faults.weak_sketch_noise),
        _fault(of_losses("`sample_dp`: a training loss without noise", *sample, FOUR, seen=loss),
               faults.exact_losses),
        _fault(of_losses("`sample_dp`: losses of samples not clipped", *sample, FOUR, seen=loss),
               faults.unclipped_losses),
        _fault(of_losses("`sample_dp`: a newcomer's losses without noise", *sample, FOUR,
                         seen=losses), faults.exact_losses),
        _fault(of_losses("`sample_dp`: losses on held-out samples without noise", *sample, FOUR,
                         seen=held_out_losses), faults.exact_losses),
        _fault(of_losses("`local_dp`: a training loss without noise", *local, FOUR, seen=loss,
                         copies=SAMPLES), faults.exact_losses),
        _fault(of_losses("`local_dp`: a choice by losses without noise", *local, FOUR, seen=choice,
                         copies=SAMPLES), faults.exact_losses),
    ]  # fmt: skip


def _fault(case: Case, fault: faults.Fault) -> Row:
    trials = FEW if case.of_losses else 2 * FEW
    return Row(case=case, part="fault", trials=trials, gaussian=True, fault=fault)
