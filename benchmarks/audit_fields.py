"""What leaves a client, field by field, under each setting; tests hold it against the code."""

from dataclasses import dataclass

from table import header, row

CLEAR, NOISE, REFUSED, SUM, NOTHING = "exact", "with noise", "refused", "in a sum", "not sent"
AS_TEXT, KIND = "as text", "only the kind of error"
WANTED = "with noise if the method needs it, else not sent"


@dataclass(frozen=True)
class Field:
    """A field of a reply, what it says, and how it leaves under each setting."""

    message: str
    name: str
    says: str
    without: str = CLEAR
    sample_dp: str = CLEAR
    local_dp: str = CLEAR
    secagg: str = NOTHING


def _report(name: str, method: str) -> Field:
    return Field("training", f"report.{name}", method, CLEAR, REFUSED, REFUSED, REFUSED)


def _masked(name: str, says: str, secagg: str) -> Field:
    return Field(MASKED_SUM, name, says, NOTHING, NOTHING, NOTHING, secagg)


INTRODUCTION, TRAINING, EVALUATION, PLACEMENT = "introduction", "training", "evaluation", "newcomer"
MASKED_SUM, FAILURE = "secure sum", "failure"
FIELDS = (
    Field(INTRODUCTION, "client_id", "its number", secagg=CLEAR),
    Field(INTRODUCTION, "group", "its planted group; in simulations", secagg="always -1"),
    Field(INTRODUCTION, "samples", "its number of samples", secagg="always 0"),
    Field(INTRODUCTION, "malicious", "whether it attacks; in simulations", secagg=CLEAR),
    Field(INTRODUCTION, "flower", "its version of Flower", secagg=CLEAR),
    Field(TRAINING, "model", "the trained model", CLEAR, NOISE, NOISE, SUM),
    Field(TRAINING, "num_examples", "its number of samples", secagg=SUM),
    Field(TRAINING, "loss", "mean training loss; under a privacy that of the received model",
          CLEAR, WANTED, WANTED, SUM),
    Field(TRAINING, "train_s", "seconds of the training"),
    Field(TRAINING, "choice", "which of several models suits it best", CLEAR, NOISE, NOISE, SUM),
    Field(TRAINING, "fitting", "whether its update is within the clip bound",
          NOTHING, NOTHING, NOISE, REFUSED),
    Field(TRAINING, "report.held_out_losses", "losses on held-out samples; `strategy.fallback`",
          CLEAR, WANTED, WANTED, REFUSED),
    _report("offered_losses", "losses of all models; FedDrift"),
    _report("class_losses", "loss of each class; for methods of others"),
    _report("class_counts", "samples of each class; for methods of others"),
    _report("subspace", "principal vectors of its samples; PACFL"),
    _report("class_subspaces", "the same for each class; PACFL"),
    _report("latent_moments", "means and deviations of latent features; FLUX"),
    _report("class_latent_moments", "the same for each class; FLUX"),
    _report("loss_trajectory", "losses in the course of the training; FedGWC"),
    _report("weights", "weights of the components; FedEM"),
    _report("class_weights", "the same for each class; FedRC"),
    Field(EVALUATION, "loss", "mean loss on its test data"),
    Field(EVALUATION, "num_examples", "its number of test samples"),
    Field(EVALUATION, "choice_loss", "loss by which it chooses: on its training data if asked",
          CLEAR, NOTHING, NOTHING),
    Field(EVALUATION, "accuracy", "accuracy on its test data", secagg=SUM),
    Field(EVALUATION, "metric.*", "metrics of the task on its test data"),
    Field(EVALUATION, "table", "points of each class by centroid; k-means",
          CLEAR, REFUSED, REFUSED, REFUSED),
    Field(EVALUATION, "attack_success", "success of a backdoor; in simulations"),
    Field(PLACEMENT, "loss", "least training loss among the models", CLEAR, NOISE, NOISE, REFUSED),
    Field(PLACEMENT, "num_examples", "its number of samples", secagg=REFUSED),
    Field(PLACEMENT, "losses", "training loss of each model", CLEAR, NOISE, NOISE, REFUSED),
    _masked("mask_keys", "a public key, new for each sum", "random"),
    _masked("cipher_keys", "another one", "random"),
    _masked("ids", "the clients that it has shares for", "exact, as the server told it"),
    _masked("boxes", "shares of its secrets for these clients", "encrypted"),
    _masked("vector", "all that is summed: count, weight, loss, update, or accuracy", "masked"),
    _masked("refused", "the clients whose shares for it do not open", "exact"),
    _masked("seeds", "its shares of the seeds of clients in the sum", "of others' secrets"),
    _masked("keys", "its shares of the keys of clients that were lost", "of others' secrets"),
    _masked("sketch", "direction of its cumulated updates, once; `secure_flic`", NOISE),
    Field(FAILURE, "reason", "why it could not answer", AS_TEXT, KIND, KIND, KIND),
)  # fmt: skip


def table() -> list[str]:
    """Return the table of all fields."""
    lines = [
        "Every field of every reply that the server reads; a test fails for one that is not here.",
        "",
        *header("reply", "field", "says", "`none`", "`sample_dp`", "`local_dp`", "`secagg`"),
    ]
    for each in FIELDS:
        ways = (each.without, each.sample_dp, each.local_dp, each.secagg)
        lines.append(row(each.message, f"`{each.name}`", each.says, *ways))
    return lines
