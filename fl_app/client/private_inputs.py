"""Whether one sample of a client changes the inputs that its other samples become."""

from fl_app.data.datasets import Dataset


def check(data: Dataset) -> None:
    """Raise ValueError if inputs depend on statistics of the client's own samples.

    DP-SGD bounds what each sample adds to a sum of gradients. With such statistics a sample also
    changes all other inputs, and so their gradients, which nothing bounds.
    """
    if data.statistics:
        raise ValueError(
            "privacy=sample_dp needs inputs that do not depend on other samples of the client, got "
            f"{', '.join(data.statistics)}, found in all its samples with population=own; give "
            "data.standardise=false, data.missing=refuse, and lists of classes and categories, "
            "and scale by numbers that are known without the data"
        )
