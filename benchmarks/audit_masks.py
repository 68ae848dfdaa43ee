"""Trials of secure aggregation: what the server sees of a client with and without a canary.

Three clients of the product form a sum by the protocol of `masking=secagg`; the attacker knows the
updates of the other two, and all that the protocol gives to a server that follows it.
"""

from dataclasses import replace

import numpy as np
from audit_trials import DELTA, SIZE, WHOLE, WORDS, Case, certain, reply, update, with_samples

from fl_app import client_wiring, wiring
from fl_app.client_app import FederatedClient
from fl_app.config import load
from fl_app.evaluation.privacy_audit import Audit, audit
from fl_app.masking import slots
from fl_app.masking.participant import Participant
from fl_app.masking.settings import SecAgg
from fl_app.masking.unmasking import unmasked
from fl_app.rng import generator
from fl_app.types import Integers

CLIENTS = 3
CASE = Case(
    name="", words=WHOLE, inside=with_samples(SIZE), outside=with_samples(0.0), seen=update,
    start=certain,
)  # fmt: skip


def audits(trials: int) -> tuple[Audit, Audit]:
    """Return what the attack achieves on a masked vector, and on the sum of all."""
    settings = wiring.masking(load([*WORDS, "masking=secagg"]).masking)
    assert isinstance(settings, SecAgg)
    contents = _contents(settings)
    along = contents[0][0].view(np.int32).astype(float) - contents[1][0].view(np.int32)
    along /= np.linalg.norm(along)
    each = range(trials)
    views = [
        np.array([[seen.view(np.int32) @ along for seen in _views(given, settings)] for _ in each])
        for given in contents
    ]
    one, total = (audit(views[0][:, k], views[1][:, k], delta=DELTA) for k in range(2))
    return one, total


def _contents(settings: SecAgg) -> list[list[Integers]]:
    """Return the vectors (l,) that the clients mask, with and without a canary of the first."""
    found = []
    for data in (CASE.inside, CASE.outside):
        every = []
        for client_id in range(CLIENTS):
            local = client_wiring.client(CASE.config, client_id)
            mine = (data if client_id == 0 else CASE.outside)(local.load(1))
            client = FederatedClient(replace(local, load=lambda _, mine=mine: mine))
            done = reply(CASE, client, 1)
            moved = update(CASE, client, 1).astype(np.float32)
            told = float(done.num_examples), float(done.metrics["loss"])
            draw = generator(local.seed, purpose="masked rounding", round=1, client=client_id)
            every.append(slots.trained(moved, *told, settings.limits, CLIENTS, draw=draw))
        found.append(every)
    return found


def _views(contents: list[Integers], settings: SecAgg) -> tuple[Integers, Integers]:
    """Return the first client's masked vector (l,), and the sum (l,) of all without masks."""
    clients = [Participant(each) for each in range(CLIENTS)]
    public = {each.client_id: each.set_up() for each in clients}
    others = {each: [o for o in range(CLIENTS) if o != each] for each in range(CLIENTS)}
    needed = settings.needed(CLIENTS)
    boxes = [c.share({o: public[o] for o in others[c.client_id]}, needed) for c in clients]
    masked = [
        client.mask(content, {o: boxes[o][client.client_id] for o in others[client.client_id]})[0]
        for client, content in zip(clients, contents, strict=True)
    ]
    revealed = [client.reveal(range(CLIENTS), [])[0] for client in clients]
    total, _ = unmasked(
        np.sum(masked, axis=0, dtype=np.uint32),
        graph=others,
        dropped=[],
        mask_keys={each: keys[0] for each, keys in public.items()},
        seed_shares={
            each: {teller: shares[each] for teller, shares in enumerate(revealed)}
            for each in range(CLIENTS)
        },
        key_shares={},
        threshold=dict.fromkeys(range(CLIENTS), needed),
    )
    return masked[0], total
