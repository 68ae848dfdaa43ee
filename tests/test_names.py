"""One name has one meaning."""

import re
from collections import Counter
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


def test_no_two_classes_have_the_same_name() -> None:
    files = (REPO / "fl_app").rglob("*.py")
    texts = [file.read_text(encoding="utf-8") for file in files]
    names = Counter(name for text in texts for name in re.findall(r"^class ([A-Z]\w*)", text, re.M))
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > 200
