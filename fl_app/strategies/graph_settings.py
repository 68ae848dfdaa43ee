"""Which settings of the graph have an effect on a method."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fl_app.graph.similarity import UpdateDistance
from fl_app.types import Contrast

MODULARITY = ("backend", "resolution", "neighbours")
VECTORS = ("sketch_dim",)
LOYALTY = ("benign", "root_samples")
"""Settings that say which communities are assumed loyal, whatever the method is."""
SKETCHABLE = get_args(UpdateDistance)
"""Distances that sketches approximate well."""


@dataclass(frozen=True, kw_only=True)
class GraphUse:
    """Which settings of the graph have an effect on a method; others are rejected.

    `modularity`: communities are found by modularity; `dense`: always from all pairs, and not from
    the nearest neighbours. `contrast`: they can be found in cumulated updates; then the settings
    `contrasted` have an effect too, and with contrast alone the options `replaced` of the method
    have none. `gains`: contrast beside the own graph gained in some populations that were measured
    and lost nearly nothing in the others; `gains_in_noise`: as contrast alone with a privacy.
    `ahead`: in rounds before the clustering, the records can contain the communities that would be
    found.
    `vectors`: why the method needs whole vectors and cannot use sketches; if `option` is given,
    this holds only without contrast and if the value of that option is not one of SKETCHABLE.
    `only`: the method keeps no vectors of clients, and only these settings and LOYALTY have an
    effect; None: it has a graph. `suspects`: clients outside of the communities that are assumed
    loyal are suspects; without it, the settings LOYALTY have no effect either.
    """

    modularity: bool = False
    dense: bool = False
    contrast: bool = False
    gains: bool = False
    gains_in_noise: bool = False
    contrasted: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    ahead: bool = False
    vectors: str | None = None
    option: str | None = None
    only: tuple[str, ...] | None = None
    suspects: bool = True

    def usual(self, *, private: bool) -> Contrast:
        """Return what `graph.contrast=auto` is: contrast where the method gains by it."""
        gains = self.gains_in_noise if private else self.gains
        return "both" if gains else False

    def why_not(
        self, setting: str, options: Mapping[str, Any], *, contrast: Contrast = False
    ) -> str | None:
        """Return why a setting has no effect with these options; None: it has an effect."""
        if setting in LOYALTY and not self.suspects:
            return "which suspects no clients by their community"
        if self.only is not None:
            known = setting in (*self.only, *LOYALTY)
            return None if known else "which keeps no vectors of clients in a graph"
        if setting in self.contrasted:
            return None if contrast else "which uses it only with graph.contrast=true or both"
        if setting in MODULARITY and not self.modularity:
            return "which does not find communities by modularity"
        if setting == "neighbours" and contrast is True:
            return "whose graph has all edges with graph.contrast=true"
        if setting == "neighbours" and self.dense:
            return "which finds communities from all pairs of clients"
        if setting == "contrast" and not self.contrast:
            return "whose graph is not of updates that can be cumulated"
        if setting == "look_ahead_every" and not self.ahead:
            return "which has no rounds before the clustering to record"
        if setting in VECTORS:
            return self.why_no_sketch(options, contrast=contrast)
        return None

    def why_no_sketch(
        self, options: Mapping[str, Any], *, contrast: Contrast = False
    ) -> str | None:
        """Return why sketches do not work with these options of the method; None: they do."""
        chosen = self.option is not None and options.get(self.option) in SKETCHABLE
        free = chosen or (contrast is True and self.option is not None)
        return None if free else self.vectors

    def problems(
        self,
        method: str,
        options: Mapping[str, Any],
        given: Mapping[str, Any],
        defaults: Mapping[str, Any],
        usual: Mapping[str, Any],
    ) -> list[str]:
        """Return a sentence for each setting that differs from its default without effect.

        `given` and `defaults` are the settings of the graph, `options` and `usual` the method's.
        """
        contrast: Contrast = given["contrast"]
        contrast = self.usual(private=False) if contrast == "auto" else contrast
        found = [
            f"strategy.{name} must stay {usual[name]} with graph.contrast=true, which compares "
            f"cumulated updates instead, got {options[name]}; remove it"
            for name in self.replaced
            if contrast is True and options.get(name) != usual.get(name, options.get(name))
        ]
        for name, value in given.items():
            why = self.why_not(name, options, contrast=contrast)
            off = name in ("look_ahead_every", "contrast") and not value
            if why and value != defaults[name] and not off:
                found.append(
                    f"graph.{name} must stay {defaults[name]} with strategy {method}, {why}, "
                    f"got {value}; remove it, or give graph.{name}={defaults[name]}"
                )
        why = self.why_no_sketch(options, contrast=contrast) if self.only is None else None
        if why and given["store"] == "sketch":
            found.append(
                f"graph.store must be auto, exact or disk with strategy {method}, {why}, "
                "got sketch; use auto, which uses the disk beyond graph.memory_gb"
            )
        return found


NO_GRAPH = GraphUse(only=())
NO_SUSPECTS = GraphUse(only=(), suspects=False)
