"""Settings as they are typed: the shell and Hydra read what is meant."""

import subprocess

from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from fl_app.command_words import as_value, in_shell, is_key, list_of, override

NAMES = ["age", "Blood Pressure (mmHg)", "größe", "it's", 'a "b"', "$HOME", "back\\slash", "end\\",
         "back\\'s", "a\\\\b", "`x`", "!x", "true", "null", "3", "-1", "a,b", "a=b", "[x]", "{x}",
         " x ", "", "*", "é\tf", "a;b", "a&b", "#a", "~a"]  # fmt: skip


@given(
    st.text(st.characters(exclude_characters="\r\n\x00", exclude_categories=["Cs"]), max_size=20)
)
def test_hydra_reads_a_value_as_the_text_that_it_was(text: str) -> None:
    read = OverridesParser.create().parse_override(f"data.label={as_value(text)}").value()
    assert str(read) == text


def test_a_word_is_not_quoted_without_need() -> None:
    assert as_value("age") == "age"
    assert list_of("data.exclude", "age") == "data.exclude=[age]"
    assert list_of("data.exclude", "größe") == "\"data.exclude=['größe']\""
    assert in_shell("data.label='it\\'s'") == "\"data.label='it\\'s'\""
    assert [is_key(each) for each in ("age", "a-b", "3", "3a", "a.b", "größe", "a b", "")] == [
        True, True, True, False, False, False, False, False,
    ]  # fmt: skip


def test_the_shell_passes_a_word_on_as_it_was() -> None:
    words = [f"data.label={as_value(name)}" for name in NAMES]
    script = "printf '%s\\n' " + " ".join(map(in_shell, words))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == words
    read = [OverridesParser.create().parse_override(each).value() for each in words]
    assert [str(each) for each in read] == NAMES


def test_hydra_reads_an_override_as_the_text_or_the_list_that_it_was() -> None:
    parser = OverridesParser.create()
    read = [parser.parse_override(override("records.folder", name)).value() for name in NAMES]
    assert [str(each) for each in read] == NAMES
    listed = parser.parse_override(override("data.exclude", NAMES)).value()
    assert [str(each) for each in listed] == NAMES
