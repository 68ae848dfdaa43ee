"""Rules between a network and what it is trained with."""

import re

import pytest

from fl_app.network_checks import _remedy_without_test


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({}, "let data._target_ return some"),
        ({"test_share": 0, "test_file": None}, "give data.test_share above 0"),
        ({"test_share": 0.2}, "no client has a second sample, .*: add some"),
        (
            {"test_share": 0.2, "test_file": None, "client": "hospital"},
            "add some, or give data.test_file, or give data.client=null with population=iid",
        ),
    ],
)
def test_the_remedy_for_data_without_test_samples_is_that_of_their_options(
    given: dict[str, object], remedy: str
) -> None:
    assert re.search(f"{remedy}$", _remedy_without_test(given))
