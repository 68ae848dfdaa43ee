"""The noise that a budget requires, before any training; writes docs/results/privacy_noise.md.

.venv/bin/python benchmarks/privacy_noise.py
"""

from math import sqrt
from pathlib import Path

from table import arguments, header, row

from fl_app.client import accountant
from fl_app.client.accountant import whole_update
from fl_app.client.local_dp import noise_norm

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "privacy_noise.md"
DELTA, ROUNDS = 1e-5, 60
PARAMETERS, COMMUNITY = 6794, 5
SAMPLES, BATCH, EPOCHS = 200, 50, 1
EPSILONS = (1.0, 3.0, 10.0, 30.0)
PROTOTYPE = 0.002
HEAD = f"""# The noise that a budget requires

Written by `benchmarks/privacy_noise.py`: epsilon at delta {DELTA:g}, {ROUNDS} rounds in which a
client always participates, a network of {PARAMETERS:,} parameters, as in
`experiment=dcfl_mnist`. All norms are in clip bounds.

## One client's whole update: `privacy=local_dp`

The norm of a clipped update is at most 1. The norm of its noise is `noise multiplier *
sqrt(parameters)`. In the mean over a community of {COMMUNITY}, the noise is smaller by a factor of
sqrt({COMMUNITY}), and the signal is not larger.
"""
SAMPLE_HEAD = f"""
## One sample of a client: `privacy=sample_dp`

DP-SGD on {SAMPLES} samples in batches of {BATCH}, {EPOCHS} epoch per round. The noise is added to
the sum of the clipped gradients of a batch, each with a norm of at most 1. The norm of the noise on
their mean is `noise multiplier * sqrt(parameters) / {BATCH}`.
"""


def main() -> None:
    """Compute the noise and write the page."""
    arguments(__doc__).parse_args()
    lines = [HEAD, *_updates(), SAMPLE_HEAD, *_samples()]
    PAGE.write_text("\n".join(lines) + "\n")
    print(PAGE.read_text())


def _updates() -> list[str]:
    names = ("budget", "noise multiplier", "epsilon of the run", "norm of the noise",
             f"norm in the mean of {COMMUNITY}")  # fmt: skip
    lines = header(*names)
    cases = [(f"{e:g} for {name}", accountant.update_noise(e, DELTA, rounds=rounds))
             for name, rounds in (("the run", ROUNDS), ("each round", 1))
             for e in EPSILONS]  # fmt: skip
    for name, noise in [*cases, ("a given noise multiplier", PROTOTYPE)]:
        spent = accountant.spent([whole_update(noise)] * ROUNDS, DELTA)
        norm = noise_norm(PARAMETERS, noise_multiplier=noise)
        cells = (f"{noise:.3g}", f"{spent:,.0f}", f"{norm:.3g}", f"{norm / sqrt(COMMUNITY):.3g}")
        lines.append(row(name, *cells))
    return lines


def _samples() -> list[str]:
    lines = header(
        "budget", "noise multiplier", "epsilon of the run", "norm of the noise on a step"
    )
    rate, steps = BATCH / SAMPLES, EPOCHS * SAMPLES // BATCH
    for name, rounds in (("the run", ROUNDS), ("each round", 1)):
        for epsilon in EPSILONS:
            noise = accountant.sample_noise(epsilon, DELTA, rate, steps * rounds)
            release = accountant.Release(noise, rate, steps)
            spent = accountant.spent([release] * ROUNDS, DELTA)
            norm = noise_norm(PARAMETERS, noise_multiplier=noise) / BATCH
            cells = (f"{noise:.3g}", f"{spent:,.0f}", f"{norm:.3g}")
            lines.append(row(f"{epsilon:g} for {name}", *cells))
    return lines


if __name__ == "__main__":
    main()
