"""CONTRIBUTING's list of the files that a new operator touches is what its newest one touches."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "CONTRIBUTING.md"
CODE = ("bindings", "golden", "ops", "python")
# Code that names AllToAll, its struct or its golden module. A torch function ends in _single.
NAMED = re.compile(r"\b(AllToAll|AllToAllParam|all_to_all(/param\.h)?|ALL_TO_ALL)\b")
# What is ATB's own: how its case files differ, where they do.
DIFFERENCES = "golden/case_files/"
# A way in which the benchmarks move rows, which is not the operator.
OF_OTHERS = {"python/collops/bench/peers/torch_calls.py"}


def listed() -> set[str]:
    """The files and folders of the page's list."""
    section = PAGE.read_text().partition("## Add an operator")[2].partition("\n## ")[0]
    return {line.strip() for line in re.findall(r"^    ([\w./]+)$", section, re.MULTILINE)}


def code_of(path: Path) -> str:
    """A source without its comments, and in Python without its texts of many lines."""
    text = path.read_text()
    if path.suffix in {".py", ".pyi"}:
        text = re.sub(r'"""(?:.|\n)*?"""', "", text)
        return re.sub(r"#.*", "", text)
    return re.sub(r"//.*", "", text)


def touched(root: Path) -> set[str]:
    """Every source that knows the operator; its own folder counts as one."""
    found = set()
    for folder in CODE:
        for path in sorted((root / folder).rglob("*.*")):
            if path.suffix not in {".py", ".pyi", ".cpp", ".h"}:
                continue
            name = str(path.relative_to(root))
            own = re.search(r"^(.*/all_to_all/)", name)
            if own:
                found.add(own[1])
            elif path.stem == "all_to_all" or NAMED.search(code_of(path)):
                found.add(name)
    return {name for name in found if not name.startswith(DIFFERENCES)} - OF_OTHERS


def test_the_list_is_what_the_operator_touches() -> None:
    assert touched(ROOT) == listed()
    assert not any(name.startswith("ops/comm") for name in listed())


def test_a_file_more_is_found(tmp_path: Path) -> None:
    for name, text in (
        ("ops/operators/all_to_all/param.h", ""),
        ("ops/comm/communicator.h", "// AllToAll in words\n"),
        ("bindings/params.cpp", '{"AllToAllParam"}'),
        ("python/collops/a.py", '"""AllToAll."""\nx = 1  # AllToAll\n'),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert touched(tmp_path) == {"ops/operators/all_to_all/", "bindings/params.cpp"}
    (tmp_path / "ops/comm/communicator.h").write_text("Status AllToAll();\n")
    assert "ops/comm/communicator.h" in touched(tmp_path)
