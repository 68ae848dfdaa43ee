"""Which client of a finished run is meant, and which of its models that client uses."""

from collections.abc import Collection, Mapping, Sequence

from fl_app.data.frame import shortened


def client_id(given: int | str, clients: Collection[int], names: Mapping[int, str]) -> int:
    """Return a client's id: a number, or a text with its id or its own name.

    `id:<id>` and `name:<name>` are always clear. Raises ValueError for an unknown name, and for
    a text that is the id of one client and the name of another.
    """
    if isinstance(given, int):
        return given
    kind, marked, text = given.partition(":")
    kind, text = (kind, text) if marked and kind in ("id", "name") else ("", given)
    named = [client for client, name in names.items() if name == text and kind != "id"]
    number = int(text) if text.isdecimal() and kind != "name" else None
    if number is not None and (number in clients or not named) and named != [number]:
        named.append(number)
    if len(named) == 1:
        return named[0]
    if named:
        raise ValueError(
            f"the client must be clear, got {given}, the name of client {named[0]} and the id "
            f"of {names.get(named[1], 'another')}; give name:{text} or id:{text}"
        )
    known = shortened(list(names.values())) or "none with names of their own"
    raise ValueError(
        f"the client must be the id or the name of one of this run, {known}, got {given}; use "
        "one of these"
    )


def model_of(client: int, clients: Mapping[int, Sequence[str]]) -> str:
    """Return the name of a client's model; raises ValueError as `FinishedRun.model`.

    `clients` has the names of the models of each client; several: it chooses on its data.
    """
    if client not in clients:
        known = _ranges(sorted(clients)) or "none"
        raise ValueError(
            f"the client must be one of this run, {known}, got {client}; use fl-app assign for "
            "a client that left or was never there, or give a community"
        )
    names = clients[client]
    if len(names) != 1:
        raise ValueError(
            f"client {client} must have one model, but chooses on its data among "
            f"{', '.join(names)}, and the server knows no choice of it; find its model by "
            "fl-app assign with its samples, and give that by name"
        )
    return names[0]


def _ranges(ids: Sequence[int]) -> str:
    """Return sorted ids in words, such as 0, 2..9."""
    known = {*ids}
    starts = [each for each in ids if each - 1 not in known]
    ends = [each for each in ids if each + 1 not in known]
    pairs = zip(starts, ends, strict=True)
    return shortened([str(one) if one == last else f"{one}..{last}" for one, last in pairs])
