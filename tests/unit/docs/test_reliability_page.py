"""docs/reliability.md: every promise names a test, and every test that is named exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reliability.md"
NAMED = re.compile(r"`(tests/[\w/]+\.(?:py|cpp))::([^`]+)`")
HEAD = "| promise | shown by |"


def promises(text: str) -> list[str]:
    """The rows of the tables of promises."""
    rows = []
    for table in text.split(HEAD)[1:]:
        lines = table.partition("\n\n")[0].splitlines()[2:]
        rows += [line for line in lines if line.startswith("|")]
    return rows


def exists(root: Path, path: str, name: str) -> bool:
    """Whether a file has that test; a scene of tests/messages is named by a text."""
    if not (root / path).is_file():
        return False
    text = (root / path).read_text()
    if path.endswith(".cpp"):
        return f"TEST({name})" in text
    if name.startswith("test_"):
        return re.search(rf"^(async )?def {re.escape(name)}\(", text, re.MULTILINE) is not None
    return f'"{name}"' in text


def missing(root: Path, text: str) -> list[str]:
    return [f"{path}::{name}" for path, name in NAMED.findall(text) if not exists(root, path, name)]


def test_every_named_test_exists() -> None:
    text = PAGE.read_text()
    assert len(NAMED.findall(text)) > 50
    assert missing(ROOT, text) == []


def test_every_promise_names_a_test() -> None:
    rows = promises(PAGE.read_text())
    assert len(rows) > 30
    assert [row for row in rows if not NAMED.search(row)] == []
    assert not [row for row in rows if row.count("::") != len(NAMED.findall(row))]
