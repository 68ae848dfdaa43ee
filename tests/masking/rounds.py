"""A secure sum without messages: participants, and a server that only passes on and adds."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fl_app.masking.neighbours import Graph, ring
from fl_app.masking.participant import Participant
from fl_app.masking.settings import SecAgg
from fl_app.masking.unmasking import unmasked
from fl_app.types import Integers


def settings(threshold: float = 0.66, neighbours: int | None = None) -> SecAgg:
    return SecAgg(
        threshold=threshold,
        neighbours=neighbours,
        smallest=1,
        largest_change=8.0,
        most_samples=1000,
        largest_loss=100.0,
    )


@dataclass
class Round:
    """The clients `count` of a sum, those lost before their vector and after it.

    `view` has all that the server receives, in order, and `wrong` who told wrong shares.
    """

    count: int
    given: SecAgg = field(default_factory=settings)
    clients: dict[int, Participant] = field(default_factory=dict)
    boxes: dict[int, dict[int, bytes]] = field(default_factory=dict)
    public: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    graph: Graph = field(default_factory=dict)
    view: list[object] = field(default_factory=list)
    wrong: set[int] = field(default_factory=set)

    def begin(self) -> "Round":
        """Play the stages before the vectors."""
        self.clients = {each: Participant(each) for each in range(self.count)}
        self.public = {each: client.set_up() for each, client in self.clients.items()}
        self.graph = ring([*self.public], self.given.neighbours, np.random.default_rng(0))
        self.boxes = {
            each: client.share({o: self.public[o] for o in self.graph[each]}, self.needed(each))
            for each, client in self.clients.items()
        }
        return self

    def needed(self, client: int) -> int:
        return self.given.needed(len(self.graph[client]) + 1)

    def vectors(
        self, of: Mapping[int, Integers], dropped: Collection[int] = ()
    ) -> dict[int, Integers]:
        """Return the masked vectors of those that do not drop out."""
        return {
            each: client.mask(of[each], {o: self.boxes[o][each] for o in self.graph[each]})[0]
            for each, client in self.clients.items()
            if each not in dropped
        }

    def total(self, masked: Mapping[int, Integers], silent: Collection[int] = ()) -> Integers:
        """Return the sum without masks, when the `silent` reveal nothing."""
        dropped = sorted(self.clients.keys() - masked.keys())
        seeds: dict[int, dict[int, bytes]] = {each: {} for each in masked}
        keys: dict[int, dict[int, bytes]] = {each: {} for each in dropped}
        for each in sorted(masked.keys() - {*silent}):
            near = [o for o in (*self.graph[each], each) if o in masked]
            lost = [o for o in self.graph[each] if o in dropped]
            found = self.clients[each].reveal(near, lost)
            self.view.append(found)
            for other, share in zip(near, found[0], strict=True):
                seeds[other][each] = share
            for other, share in zip(lost, found[1], strict=True):
                keys[other][each] = share
        length = len(next(iter(masked.values())))
        found, self.wrong = unmasked(
            sum(masked.values(), np.zeros(length, np.uint32)),
            graph=self.graph,
            dropped=dropped,
            mask_keys={each: pair[0] for each, pair in self.public.items()},
            seed_shares=seeds,
            key_shares=keys,
            threshold={each: self.needed(each) for each in self.graph},
        )
        return found
