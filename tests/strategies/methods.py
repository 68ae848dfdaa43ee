"""Every strategy as the tests build it, by a name: all of conf/strategy, and other settings."""

from fl_app.composition import choices
from fl_app.config import option
from fl_app.testing.toy import builder


def _by_messages(name: str) -> bool:
    """Whether a method learns from replies: not from all data, nor from secure sums alone."""
    method = option(f"strategy={name}").resolve()
    return not method.simulation_only and not getattr(method, "needs_masks", False)


STRATEGIES = {name: builder(name) for name in choices("strategy") if _by_messages(name)} | {
    "flic median": builder("flic", rule="median"),
    "late euclidean": builder("late", similarity="euclidean"),
    "ifca gradients": builder("ifca", average="gradients"),
    "ifca restarts": builder("ifca", restarts=1),
    "ifca judged": builder("ifca", fallback=True),
    "cfl clusters of age": builder("cfl", mode="clusters", max_age=3),
    "dcfl euclidean": builder("dcfl", distance="euclidean", max_age=9),
    "flic judged": builder("flic", fallback=True),
    "cfl judged": builder("cfl_clusters", fallback=True),
    "dcfl judged": builder("dcfl", fallback=True),
    "communities_wnn judged": builder("communities_wnn", fallback=True),
    "pacfl classes": builder("pacfl", signature="classes", angle="mean"),
    "pacfl judged": builder("pacfl", fallback=True),
    "fedgwc judged": builder("fedgwc", fallback=True),
    "fedem judged": builder("fedem", fallback=True),
    "fedrc judged": builder("fedrc", fallback=True),
    "feddrift judged": builder("feddrift", fallback=True),
    "flux refresh": builder("flux", cluster_round="auto", descriptor="data", refresh=2),
    "flux judged": builder("flux", fallback=True, refresh=3),
    "kmeans random": builder("kmeans", init="random"),
    "kmeans dynamic": builder("kmeans", init="random", weighting="dynamic"),
    "kmeans own": builder("kmeans", n_init=2),
    "kmeans equal starts": builder("kmeans", init="random", weighting="equal", n_init=3),
    "communities catching up": builder("communities", participation=0.4, catch_up=True),
    "late catching up": builder("late", participation=0.4, catch_up=True),
    "dcfl catching up": builder("dcfl", participation=0.4, catch_up=True),
    "communities_1nn of age": builder("communities_1nn", max_age=4),
    "communities_wnn euclidean": builder(
        "communities_wnn", similarity="euclidean", weighting="samples"
    ),
}
