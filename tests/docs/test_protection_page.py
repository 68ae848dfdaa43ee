"""Every number of a cost stands on a page of results that its cell links."""

import re
from pathlib import Path

import pytest
import yaml
from hydra.utils import get_class

from fl_app.composition import CONF

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "protection.md").read_text()
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")][1:]
LINK = re.compile(r"\[[^\]]*\]\((results/[^)]+)\)")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
COSTS = [row[4] for row in ROWS if LINK.search(row[4])]


def test_all_attackers_and_settings_are_in_the_table() -> None:
    assert all(len(row) == 5 for row in ROWS)
    table = " ".join(" ".join(row) for row in ROWS)
    for word in ("eavesdropper", "curious", "malicious server", "another client", "Byzantine",
                 "published", "secagg", "sample_dp", "local_dp", "TLS"):  # fmt: skip
        assert word in table


@pytest.mark.parametrize("cost", COSTS)
def test_the_numbers_of_a_cost_are_those_of_the_linked_pages(cost: str) -> None:
    begin = 0
    for link in LINK.finditer(cost):
        part, begin = cost[begin : link.start()], link.end()
        page = (DOCS / link[1]).read_text().replace(",", "")
        for number in NUMBER.findall(part):
            found = re.escape(number.replace(",", ""))
            assert re.search(rf"(?<![\d.]){found}(?![\d.]*\d)", page), (number, link[1])
    assert not NUMBER.findall(cost[begin:])


def test_costs_are_checked() -> None:
    assert sum(len(NUMBER.findall(LINK.sub("", cost))) for cost in COSTS) > 25


def test_each_page_on_privacy_names_the_methods_that_refuse_it() -> None:
    refusing = {"kmeans"}
    for file in (CONF / "strategy").glob("*.yaml"):
        target = str(yaml.safe_load(file.read_text()).get("_target_", ""))
        if target and get_class(target).asks:
            refusing.add(file.stem)
    readme = (DOCS.parent / "README.md").read_text()
    privacy = (DOCS / "privacy.md").read_text()
    for text in (readme.split("## Privacy")[1], privacy.split("| `privacy=`")[0], PAGE):
        named = text.lower().replace("k-means", "kmeans")
        assert sorted(method for method in refusing if method not in named) == []
