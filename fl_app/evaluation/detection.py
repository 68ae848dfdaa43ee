"""Detection of malicious clients, for simulations that know them."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from fl_app.evaluation.agreement import pure_share


def detection(
    suspects: Set[int],
    malicious: Set[int],
    clients: Set[int],
    accuracy: Mapping[int, float],
    members: Mapping[int, int],
) -> dict[str, Any]:
    """Return how well the `suspects` among `clients` match the `malicious`.

    `precision` is the share of suspects that are malicious, None without suspects; `recall` is the
    share of malicious clients that are suspects, None without malicious clients. `loyal_lost` is
    the number of loyal suspects; `loyal_accuracy` is the mean accuracy of the measured loyal
    clients. If `members` gives the community of each client: `pure_share` with malicious and loyal
    as the groups, and `loyal_sizes`, the sizes of the communities with more loyal than malicious
    members, largest first.
    """
    loyal = clients - malicious
    caught, lost = suspects & malicious, suspects & loyal
    measured = [accuracy[client] for client in sorted(loyal) if client in accuracy]
    return {
        "malicious": len(malicious & clients),
        "suspects": len(suspects),
        "precision": len(caught) / len(caught | lost) if caught | lost else None,
        "recall": len(caught) / len(malicious & clients) if malicious & clients else None,
        "loyal_lost": len(lost),
        "loyal_accuracy": float(np.mean(measured)) if measured else None,
        **_communities(members, malicious),
    }


def _communities(members: Mapping[int, int], malicious: Set[int]) -> dict[str, Any]:
    if not members:
        return {"pure_share": None, "loyal_sizes": None}
    labels = np.array(list(members.values()))
    bad = np.array([client in malicious for client in members])
    sizes, lost = np.bincount(labels), np.bincount(labels, weights=bad)
    return {
        "pure_share": pure_share(labels, bad.astype(int)),
        "loyal_sizes": sorted(sizes[2 * lost < sizes].tolist(), reverse=True),
    }
