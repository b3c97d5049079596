"""A page says the same in Chinese; README.md has pictures that a script of the tree draws."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import environment
import readme

ROOT = Path(__file__).resolve().parents[3]
CHINESE = [ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("*.zh-CN.md"))]
README = (ROOT / "README.md").read_text()
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    \S.*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(text: str) -> list[str]:
    """The blocks of code, and the lines of commands."""
    return FENCE.findall(text) + INDENTED.findall(FENCE.sub("", text))


def prose(text: str) -> str:
    """A page without its code, and without the marks that no reader sees."""
    return INDENTED.sub("", FENCE.sub("", re.sub(r"<!-- .*? -->", "", text)))


def headings(text: str) -> list[str]:
    """Their levels, with what is code in them."""
    found = re.findall(r"^(#+) (.+)$", prose(text), re.MULTILINE)
    return [level + "".join(re.findall(r"`[^`]+`", title)) for level, title in found]


def tables(text: str) -> list[int]:
    """The number of cells in each line of a table."""
    return [line.count(" | ") for line in prose(text).splitlines() if line.startswith("|")]


def code_words(text: str) -> set[str]:
    """What stands in backquotes, in any order and number: languages differ in theirs."""
    return {re.sub(r"\s+", " ", word) for word in re.findall(r"`([^`]+)`", prose(text))}


def links(text: str) -> set[str]:
    """The pages; in Chinese some are others, and a page links to itself in the other language."""
    return {link.partition("#")[0].replace(".zh-CN", "") for link in LINK.findall(prose(text))}


def digits(text: str) -> list[str]:
    """The numbers, but for those of words such as C++17 and x86-64, which both languages spell."""
    return sorted(re.findall(r"\d+(?:[./]\d+)*", prose(text)))


def test_there_are_pages_in_chinese() -> None:
    assert len(CHINESE) == 6


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
@pytest.mark.parametrize(
    "part", [blocks, headings, tables, code_words, links, digits], ids=lambda part: part.__name__
)
def test_both_languages_have_the_same(page: Path, part: Callable[[str], object]) -> None:
    english = page.with_name(page.name.replace(".zh-CN", "")).read_text()
    assert part(english)
    assert part(page.read_text()) == part(english)


def test_the_pictures_are_drawn_from_the_tree(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert readme.main(str(tmp_path)) == 0
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert {*drawn} <= {path.name for path in (ROOT / "docs" / "pictures").iterdir()}
    shown = [link for link in sorted(links(README)) if link.startswith("docs/pictures/")]
    assert shown == [f"docs/pictures/{name}" for name in drawn]


def test_a_picture_has_its_own_background() -> None:
    """So it can be read on a dark page."""
    for path in (ROOT / "docs" / "pictures").glob("*.svg"):
        assert 'id="patch_1"' in path.read_text() and "fill: #ffffff" in path.read_text(), path


def test_torchs_line_installs_the_cpu_build() -> None:
    [line] = re.findall(r"^    pip install torch .*$", README, re.MULTILINE)
    assert line.split()[-2:] == ["--index-url", environment.TORCH_INDEX]
