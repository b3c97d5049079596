"""Every message of the sources is read by a row of the table, or elsewhere.txt says by what."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.refusals import refusal_table
from tests.refusals.literals import ROOT, collected, of_cpp, reads


@cache
def elsewhere() -> dict[str, str]:
    """The messages of the file, and what reads each."""
    found, reader = {}, ""
    for line in Path(__file__).with_name("elsewhere.txt").read_text().splitlines():
        if line.startswith("== "):
            reader = line[3:]
        elif line and not line.startswith("# "):
            found[line] = reader
    return found


@cache
def said() -> str:
    """All that the table and the scenes of losses and endings say."""
    rows, _ = refusal_table.read()
    lines = [row.expected(name) for row in rows for name in row.names or ("",)]
    scenes = ROOT / "tests" / "messages" / "expected.txt"
    return "\n".join([*lines, scenes.read_text()])


def test_no_message_is_unread() -> None:
    unread = [
        f"{path}: {message}"
        for message, path in collected().items()
        if message not in elsewhere() and not reads(message, said())
    ]
    assert not unread, "\n".join(["messages that no test reads; add rows.", *unread])


def test_elsewhere_has_nothing_else() -> None:
    """Neither messages that no source has, nor those that a row reads."""
    sources = collected()
    assert [m for m in elsewhere() if m not in sources or reads(m, said())] == []


def plain(text: str) -> str:
    """The text of a source with its literals in one piece."""
    return re.sub(r'"\s*r?f?"', "", text.replace("\\", ""))


@pytest.mark.parametrize(
    "folder", sorted({r for r in elsewhere().values() if not r.startswith("nobody: ")})
)
def test_the_folders_that_read_them_have_their_words(folder: str) -> None:
    files = [p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".cpp", ".h")]
    text = "\n".join(plain(path.read_text()) for path in files)
    for message in [m for m, r in elsewhere().items() if r == folder]:
        longest = max(message.split("..."), key=len)
        parts = [longest[i : i + 12] for i in range(max(1, len(longest) - 11))]
        assert any(part in text for part in parts), message


def test_what_is_collected() -> None:
    text = """
      // Error(CODE, "not this")
      COLLOPS_CHECK_ARG(f(a, b) == "x", CODE, op, ": ", n, " rows, ", "or ", more ? "one" : name,
                        " of ", Made("this", n));
      return Error(CODE, "no \\"memory\\" "
                         "for ", n);
    """
    assert [message.replace("\0", "...") for message in of_cpp(text)] == [
        "...: ... rows, or one of ...",
        "...: ... rows, or ... of ...",
        'no "memory" for ...',
    ]
