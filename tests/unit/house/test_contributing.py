"""CONTRIBUTING's lists of files: what the newest operator, and the newest backend, really touch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "CONTRIBUTING.md"
CODE = ("bindings", "golden", "ops", "python")
SUFFIXES = {".py", ".pyi", ".cpp", ".h"}


class Newest(NamedTuple):
    """What its part of the page is headed, its stem, code that names it, and files of others."""

    heading: str
    stem: str
    named: str
    # Code that names it and is not about it.
    of_others: str


OPERATOR = Newest(
    "Add an operator",
    "all_to_all",
    # AllToAll, its struct or its golden module. A torch function ends in _single.
    r"\b(AllToAll|AllToAllParam|all_to_all|ALL_TO_ALL)\b",
    # How ATB's case files differ, where they do; a name of torch.distributed.
    r"golden/case_files/|python/collops/torch/|python/collops/bench/torch",
)
BACKEND = Newest(
    "Add a backend",
    "hccl",
    # Not as the default of a struct's field, which is ATB's.
    r'backends/hccl\b|\bhccl::|(?<!backend = )(?<!backend: str = )"hccl"',
    # What ATB's hccl lacks, and what ATB runs on other kernels.
    r"golden/case_files/differences\.py|ops/collops/operators/framework/param_check\.cpp|"
    r"ops/collops/operators/(all_reduce|all_to_all|reduce_scatter)\.cpp",
)


def listed(newest: Newest) -> set[str]:
    """The files and folders of the page's list."""
    section = PAGE.read_text().partition(f"## {newest.heading}")[2].partition("\n## ")[0]
    return {line.strip() for line in re.findall(r"^    ([\w./]+)$", section, re.MULTILINE)}


def code_of(path: Path) -> str:
    """A source without its comments, and in Python without its texts of many lines."""
    text = path.read_text()
    if path.suffix in {".py", ".pyi"}:
        text = re.sub(r'"""(?:.|\n)*?"""', "", text)
        return re.sub(r"#.*", "", text)
    return re.sub(r"//.*", "", text)


def touched(root: Path, newest: Newest) -> set[str]:
    """Every source that knows it; its own folder counts as one."""
    found = set()
    for folder in CODE:
        for path in sorted((root / folder).rglob("*.*")):
            if path.suffix not in SUFFIXES and path.name != "CMakeLists.txt":
                continue
            name = str(path.relative_to(root))
            own = re.search(rf"^(.*/{newest.stem}/)", name)
            if own:
                found.add(own[1])
            elif path.stem == newest.stem or re.search(newest.named, code_of(path)):
                found.add(name)
    return {name for name in found if not re.match(newest.of_others, name)}


@pytest.mark.parametrize("newest", [OPERATOR, BACKEND], ids=lambda newest: newest.stem)
def test_the_list_is_what_it_touches(newest: Newest) -> None:
    assert touched(ROOT, newest) == listed(newest)


def test_the_layers_of_the_others_are_not_touched() -> None:
    assert not any(name.startswith("ops/collops/comm") for name in listed(OPERATOR))
    assert all(name.startswith("ops/collops/comm/backends/") for name in listed(BACKEND))
