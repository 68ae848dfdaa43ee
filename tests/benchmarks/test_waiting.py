"""What benchmarks wait for, and what they say of what did not come."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from waiting import wait_for


def test_it_looks_until_there_is_something_and_returns_it():
    looks = iter([0, [], "there", "later"])
    assert wait_for("it", lambda: next(looks), seconds=600, every=0) == "there"


def test_what_did_not_come_is_named_with_the_details():
    with pytest.raises(TimeoutError, match=r"^waited for the end; see log$"):
        wait_for("the end", lambda: False, seconds=-1, every=0, details=lambda: "see log")
    with pytest.raises(TimeoutError, match=r"^waited for the end$"):
        wait_for("the end", lambda: False, seconds=-1, every=0)
