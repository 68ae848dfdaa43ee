"""Settings that have an effect only with some values of another one, as their class states them.

A class or function that an option names, or the dataclass of a group, has `used_with`: it maps the
name of a setting to a `When`, or to several that must all hold. A given setting that another one
makes idle is a configuration error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = object()


@dataclass(frozen=True)
class When:
    """A setting has an effect if `setting` has one of `values`, or, if empty, none of `unless`.

    `setting` is in the same group; one of another group has a dot, as `strategy.weighting`. It also
    has an effect if `otherwise` holds, and if its own value is none of `given`, unless that is
    empty.
    """

    setting: str
    values: tuple[object, ...] = ()
    unless: tuple[object, ...] = ()
    otherwise: "When | None" = None
    given: tuple[object, ...] = ()

    def holds(self, value: object) -> bool:
        """Whether a setting has an effect with this value of the other one."""
        return value in self.values if self.values else value not in self.unless

    @property
    def remedy(self) -> str:
        """What to choose for the other setting."""
        if self.values:
            return f"={yaml_of(self.values[-1])}"
        return f" other than {yaml_of(*self.unless)}"


UsedWith = Mapping[str, When | tuple[When, ...]]


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

    def holds(when: When) -> bool:
        value = look_up(_full(group, when))
        known = value is ABSENT or when.holds(value)
        return known or (when.otherwise is not None and holds(when.otherwise))

    found = []
    for name, needed in used_with.items():
        if name not in given or name not in usual or given[name] == usual[name]:
            continue
        for when in needed if isinstance(needed, tuple) else (needed,):
            harmless = when.given and given[name] not in when.given
            if harmless or holds(when):
                continue
            other, got = _full(group, when), yaml_of(given[name])
            stays = f"must stay {yaml_of(usual[name])}"
            rule, got = (f"must not be {got}", "") if when.given else (stays, f", got {got}")
            value = yaml_of(look_up(other))
            found.append(
                f"{group}.{name} {rule} with {other}={value}{got}; remove it, or choose "
                f"{other}{when.remedy}"
            )
            break
    return found


def _full(group: str, when: When) -> str:
    return when.setting if "." in when.setting else f"{group}.{when.setting}"


def yaml_of(value: object) -> str:
    """Return a value as it stands in YAML."""
    return {None: "null", True: "true", False: "false"}[value] if (
        value is None or isinstance(value, bool)
    ) else str(value)  # fmt: skip
