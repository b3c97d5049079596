"""README.md and README.zh-CN.md say the same, with pictures that a script of the tree draws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import environment
import readme

ROOT = Path(__file__).resolve().parents[3]
ENGLISH, CHINESE = ((ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md"))
# Every heading with its translation.
HEADINGS = {
    "collops": "collops",
    "Why not torch.distributed, MPI or ATB alone": "为什么不直接用 torch.distributed、MPI 或 ATB",
    "An example": "示例",
    "Install": "安装",
    "Two commands": "两条命令",
    "Operators and backends": "算子与后端",
    "Several hosts": "多机",
    "From PyTorch": "在 PyTorch 中使用",
    "Documentation": "文档",
}
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    \S.*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(text: str) -> list[str]:
    """The blocks of code, and the lines of commands."""
    return FENCE.findall(text) + INDENTED.findall(FENCE.sub("", text))


def prose(text: str) -> str:
    """A page without its code."""
    return INDENTED.sub("", FENCE.sub("", text))


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)


def tables(text: str) -> list[int]:
    """The number of cells in each line of a table."""
    return [line.count(" | ") for line in prose(text).splitlines() if line.startswith("|")]


def code_words(text: str) -> list[str]:
    """What stands in backquotes, in any order: languages differ in theirs."""
    return sorted(re.sub(r"\s+", " ", word) for word in re.findall(r"`([^`]+)`", prose(text)))


def links(text: str) -> list[str]:
    other = {"README.md", "README.zh-CN.md"}
    return sorted(set(LINK.findall(prose(text))) - other)


def digits(text: str) -> list[str]:
    """The numbers, but for those of words such as C++17 and x86-64, which both languages spell."""
    return sorted(re.findall(r"\d+(?:[./]\d+)*", prose(text)))


def test_the_headings_are_translated_one_by_one() -> None:
    assert headings(ENGLISH) == list(HEADINGS)
    assert headings(CHINESE) == list(HEADINGS.values())


@pytest.mark.parametrize(
    "part", [blocks, tables, code_words, links, digits], ids=lambda part: part.__name__
)
def test_both_languages_have_the_same(part: object) -> None:
    assert callable(part)
    assert part(ENGLISH)
    assert part(CHINESE) == part(ENGLISH)


def test_the_pictures_are_drawn_from_the_tree(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert readme.main(str(tmp_path)) == 0
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert {*drawn} <= {path.name for path in (ROOT / "docs" / "pictures").iterdir()}
    shown = [link for link in links(ENGLISH) if link.startswith("docs/pictures/")]
    assert shown == [f"docs/pictures/{name}" for name in drawn]


def test_a_picture_has_its_own_background() -> None:
    """So it can be read on a dark page."""
    for path in (ROOT / "docs" / "pictures").glob("*.svg"):
        assert 'id="patch_1"' in path.read_text() and "fill: #ffffff" in path.read_text(), path


def test_torchs_line_installs_the_cpu_build() -> None:
    [line] = re.findall(r"^    pip install torch .*$", ENGLISH, re.MULTILINE)
    assert line.split()[-2:] == ["--index-url", environment.TORCH_INDEX]
