"""The commands of the pages about deployment are ones that their programs read."""

import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from fl_app import deploy_arguments
from fl_app.config import load

REPO = Path(__file__).parents[2]
PAGES = ("README.md", "docs/deployment.md", "docs/production.md")


def commands(page: str) -> list[list[str]]:
    """Return the words of each command in the shell blocks of a page."""
    blocks = re.findall(r"```bash\n(.*?)```", (REPO / page).read_text(), re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", "")
    lines = [each for line in joined.splitlines() for each in line.split(" && ")]
    return [shlex.split(line, comments=True) for line in lines]


def after(option: str) -> list[tuple[str, str]]:
    found = [(page, words) for page in PAGES for words in commands(page) if option in words]
    return [(page, words[words.index(option) + 1]) for page, words in found]


@pytest.mark.parametrize(("page", "given"), after("--run-config"))
def test_flower_and_the_app_read_the_overrides(page: str, given: str) -> None:
    overrides = str(parse_config_args([given])["overrides"])
    assert load(shlex.split(overrides.replace("<folder>", "folder"))).rounds > 0


@pytest.mark.parametrize(("page", "given"), after("--node-config"))
def test_flower_reads_the_node_config(page: str, given: str) -> None:
    assert {"partition-id", "num-partitions"} <= set(parse_config_args([given]))


def test_scripts_deploy_reads_its_commands() -> None:
    given = [words for page in PAGES for words in commands(page) if "scripts/deploy" in words[:1]]
    assert len(given) > 5
    for _, *words in given:
        options, overrides = deploy_arguments.read(words, REPO, None)
        assert not overrides or options.action == "run"


def test_the_copy_of_the_state_database_has_what_is_in_its_log_alone(tmp_path: Path) -> None:
    """A SuperLink that has ended leaves rows in `state.db-wal`, which a plain copy would lose."""
    database, copy = tmp_path / "state.db", tmp_path / "copy.db"
    ended = "; ".join(
        (
            "import os, sqlite3, sys",
            "database = sqlite3.connect(sys.argv[1])",
            "database.execute('pragma journal_mode=wal')",
            "database.execute('create table run (id)')",
            "database.execute('insert into run values (7)')",
            "database.commit()",
            "os._exit(0)",
        )
    )
    subprocess.run([sys.executable, "-c", ended, str(database)], check=True)
    assert (tmp_path / "state.db-wal").stat().st_size
    [words] = [each for each in commands("docs/production.md") if "sqlite3" in each]
    path, statement = (each.replace("/state/", f"{tmp_path}/") for each in words[-2:])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("select id from run").fetchall() == [(7,)]
