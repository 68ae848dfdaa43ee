"""How well the malicious were told from the loyal: for simulations, where both are known."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np


def detection(
    suspects: Set[int], malicious: Set[int], clients: Set[int], accuracy: Mapping[int, float]
) -> dict[str, Any]:
    """Return how the suspects among `clients` compare with the `malicious`, and who gets what.

    `precision` is the share of suspects that are malicious, `recall` the share of the malicious
    that are suspects, None where nobody is either; `loyal_lost` counts loyal suspects;
    `loyal_accuracy` is the mean accuracy of the loyal that were measured.
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
    }
