"""Settings that have an effect only with some values of another one, as their class states them.

A class or function that an option names, or the dataclass of a group, has `used_with`: it maps the
name of a setting to a `When`. A given setting that another one makes idle is a configuration error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = object()


@dataclass(frozen=True)
class When:
    """A setting has an effect if `setting` has one of `values`, or, if empty, none of `unless`.

    `setting` is in the same group; one of another group has a dot, as `strategy.weighting`.
    """

    setting: str
    values: tuple[object, ...] = ()
    unless: tuple[object, ...] = ()

    def holds(self, value: object) -> bool:
        """Whether a setting has an effect with this value of the other one."""
        return value in self.values if self.values else value not in self.unless

    @property
    def remedy(self) -> str:
        """What to choose for the other setting."""
        if self.values:
            return f"={yaml_of(self.values[-1])}"
        return f" other than {yaml_of(*self.unless)}"


UsedWith = Mapping[str, When]


def idle_settings(
    group: str,
    used_with: UsedWith,
    given: Mapping[str, Any],
    usual: Mapping[str, Any],
    look_up: Callable[[str], object],
) -> list[str]:
    """Return a problem for each given setting of a group that another one makes idle.

    `usual` are the values that do not count as given. `look_up` returns the value of a setting such
    as `strategy.weighting`, ABSENT if there is none.
    """
    found = []
    for name, when in used_with.items():
        if name not in given or name not in usual or given[name] == usual[name]:
            continue
        other = when.setting if "." in when.setting else f"{group}.{when.setting}"
        value = look_up(other)
        if value is not ABSENT and not when.holds(value):
            found.append(
                f"{group}.{name} must stay {yaml_of(usual[name])} with {other}={yaml_of(value)}, "
                f"got {yaml_of(given[name])}; remove it, or choose {other}{when.remedy}"
            )
    return found


def yaml_of(value: object) -> str:
    """Return a value as it stands in YAML."""
    return {None: "null", True: "true", False: "false"}[value] if (
        value is None or isinstance(value, bool)
    ) else str(value)  # fmt: skip
