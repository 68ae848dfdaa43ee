"""Rules between an attack and the other groups of a configuration that need only their values."""

from collections.abc import Iterator, Mapping
from typing import Any

from fl_app.client.attacks import NoAttack
from fl_app.client.personal import reason
from fl_app.data.population import own
from fl_app.schema import Target


def attack_problems(values: Mapping[str, Any]) -> list[str]:
    """Return why an attack would have no effect in this run, or would need what it cannot know."""
    hostile = values["attack"]
    if hostile is None or not hostile.sound or hostile.resolve() is NoAttack:
        return []
    method, engine = values["strategy"], values["engine"]
    found = [*_out_of_time(hostile, values["rounds"])]
    if method is not None:
        found += _without_effect(hostile, method)
    if engine is not None and engine.name == "deployment":
        found += _unknown_to_nodes(hostile, values)
    return found


def _out_of_time(hostile: Target, rounds: int | None) -> Iterator[str]:
    start, stop = hostile.options.get("start") or 1, hostile.options.get("stop")
    if rounds is not None and start > rounds:
        yield (
            f"attack.start must be at most rounds={rounds}, got {start}: the attack would never "
            "begin; lower it, or raise rounds"
        )
    if stop is not None and stop < start:
        yield (
            f"attack.stop must be at least attack.start={start}, got {stop}: the attack would have "
            "no round; raise it, or give attack.stop=null"
        )


def _without_effect(hostile: Target, method: Target) -> Iterator[str]:
    kind = method.resolve()
    if not getattr(kind, "trains_clients", True):
        yield (
            f"attack must be none with {method.path}, whose clients train nothing, got "
            f"{hostile.path}; remove it, or use another strategy"
        )
    elif getattr(kind, "clusters_points", False) and "target" in hostile.options:
        yield (
            f"attack must be one without labels with {method.path}, whose clients cluster points "
            f"and read none, got {hostile.path}; use another attack or strategy"
        )


def _unknown_to_nodes(hostile: Target, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield why attackers on their own machines cannot compute the updates of others."""
    kind, people, personal = hostile.resolve(), values["population"], values["personal"]
    if not getattr(kind, "collusive", False):
        return
    given = f"got {hostile.path} with engine=deployment; use engine=inprocess or simulation"
    if getattr(kind, "simulation_only", False):
        yield f"attack must not be one that knows the updates of loyal clients, {given}"
    elif people is not None and people.resolve() is own:
        yield (
            "attack must be one without colluders with population=own, where no client has the "
            f"data of another, {given}, or another attack"
        )
    client = values["client"]
    if client is None or personal is None or getattr(personal.resolve(), "own_model", False):
        return
    if kept := reason(client.batch_norm, getattr(personal.resolve(), "name", personal.path)):
        yield (
            f"attack must be one without colluders with {kept}, since no client has what stays "
            f"with another, {given}, or another attack"
        )
