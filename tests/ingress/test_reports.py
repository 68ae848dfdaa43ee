"""What a learner tells beside its model: what was asked for, in its form and range, or nothing."""

import numpy as np
import pytest

from fl_app.ingress.rejection import RejectionError
from fl_app.ingress.reports import read_reports
from fl_app.learner_reports import Report, asked, packed, request

ASKS = {
    "norm": Report(length=None, low=0, high=10),
    "losses": Report(length="classes", low=0, high=100).sized(3),
}
LOSSES = np.array([0.5, 0, 99.9])


def _told(**changes: object) -> dict[str, object]:
    fields = {"loss": 0.5, **packed(request(ASKS), {"norm": 2.5, "losses": LOSSES, "rest": 1.0})}
    return fields | {f"report.{name}": value for name, value in changes.items()}


def test_a_client_sends_what_it_is_asked_for_and_the_server_reads_it() -> None:
    assert asked({"round": 3, **request(ASKS)}) == {"norm": None, "losses": 3}
    fields = _told()
    assert set(fields) == {"loss", "report.norm", "report.losses"}
    found = read_reports(fields, ASKS)
    assert found["norm"] == 2.5
    np.testing.assert_allclose(found["losses"], LOSSES, rtol=1e-6)


def _bytes(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


VECTOR = r"report\.losses must be 3 finite float32 numbers in 0\.\.100, 12 bytes, got "
NUMBER = r"report\.norm must be a number in 0\.\.10, got "
BAD = {
    "NaN": ({"losses": _bytes(1, np.nan, 2)}, VECTOR + "numbers in nan"),
    "infinite": ({"losses": _bytes(1, np.inf, 2)}, VECTOR + r"numbers in 1\.\.inf"),
    "below": ({"losses": _bytes(1, -0.1, 2)}, VECTOR),
    "above": ({"losses": _bytes(1, 100.1, 2)}, VECTOR),
    "shorter": ({"losses": _bytes(1, 2)}, VECTOR + "8 bytes"),
    "longer": ({"losses": bytes(10**6)}, VECTOR + "1000000 bytes"),
    "one byte more": ({"losses": bytes(13)}, VECTOR + "13 bytes"),
    "text": ({"losses": "0.5 0 1"}, VECTOR),
    "a list": ({"losses": [0.5, 0.0, 1.0]}, VECTOR),
    "a number": ({"losses": 0.5}, VECTOR),
    "bytes for a number": ({"norm": _bytes(1)}, NUMBER + "4 bytes"),
    "NaN for a number": ({"norm": float("nan")}, NUMBER),
    "outside": ({"norm": 10.1}, NUMBER),
    "truth": ({"norm": True}, NUMBER),
    "not asked for": ({"more": 1.0}, r"report\.more' must be a report that was asked for, got 1"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_a_report_that_breaks_its_rule_is_rejected_by_its_name(name: str) -> None:
    changes, said = BAD[name]
    with pytest.raises(RejectionError, match=said):
        read_reports(_told(**changes), ASKS)


@pytest.mark.parametrize("name", ["norm", "losses"])
def test_a_missing_report_is_rejected(name: str) -> None:
    fields = _told()
    del fields[f"report.{name}"]
    with pytest.raises(RejectionError, match=rf"report\.{name} must be present, got nothing"):
        read_reports(fields, ASKS)


@pytest.mark.parametrize(
    ("length", "low", "high", "said"),
    [
        (0, 0, 1, "length of a Report"), (-3, 0, 1, "length of a Report"),
        (2**40, 0, 1, "length of a Report"), (True, 0, 1, "length of a Report"),
        ("rows", 0, 1, "length of a Report"), (3, 1, 0, "in order"),
        (None, 0, float("inf"), "in order"), (None, float("nan"), 1, "in order"),
    ],
)  # fmt: skip
def test_a_report_has_a_length_and_a_finite_range(
    length: object, low: float, high: float, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Report(length=length, low=low, high=high)


def test_one_number_per_class_needs_classes() -> None:
    with pytest.raises(ValueError, match="no classes are known"):
        Report(length="classes", low=0, high=1).sized(None)


def test_a_length_is_multiplied_by_the_sizes_of_the_data() -> None:
    def length(**given: object) -> object:
        return Report(low=-1, high=1, **given).sized(10, 64).length

    assert length(length=3, per=("inputs",)) == 192
    assert length(length=3, per=("classes", "inputs")) == 1920
    assert length(length=None, per=("inputs",)) == 64
    assert length(length="classes", per=("inputs",)) == 640
    with pytest.raises(ValueError, match="no inputs are known"):
        Report(length=3, low=-1, high=1, per=("inputs",)).sized(10, None)
