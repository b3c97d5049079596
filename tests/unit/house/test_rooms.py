"""No folder has too many entries, and no file too many lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (
    *("bench", "bindings", "cmake", "docs", "examples", "golden", "ops", "python", "tests"),
    "tools",
)
MOST_ENTRIES = 25
MOST_LINES = 600
SOURCES = {".py", ".pyi", ".cpp", ".h", ".sh", ".cmake", ".md"}
MADE = {"__pycache__", "build", "dist", "out"}


def is_made(name: str) -> bool:
    """Whether a build or a run has made it."""
    return name in MADE or name.startswith(".") or name.endswith((".egg-info", ".so", ".pyc"))


def folders_below(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Every folder of the sources: its name, and the names of its folders and files."""
    for top in FOLDERS:
        for path, folders, files in os.walk(root / top):
            folders[:] = sorted(name for name in folders if not is_made(name))
            kept = sorted(name for name in files if not is_made(name))
            yield str(Path(path).relative_to(root)), folders, kept


def large_folders(root: Path) -> dict[str, int]:
    """The folders with too many entries, and how many they have."""
    counts = {name: len(folders) + len(files) for name, folders, files in folders_below(root)}
    return {name: count for name, count in counts.items() if count > MOST_ENTRIES}


def long_files(root: Path) -> dict[str, int]:
    """The sources and pages with too many lines, and how many they have."""
    paths = [Path(name) / file for name, _, files in folders_below(root) for file in files]
    lines = {
        str(path): (root / path).read_text().count("\n") for path in paths if path.suffix in SOURCES
    }
    return {name: count for name, count in lines.items() if count > MOST_LINES}


def test_every_folder_and_file_is_within_its_limit() -> None:
    assert large_folders(ROOT) == {}


def test_no_file_is_too_long() -> None:
    assert long_files(ROOT) == {}


def test_a_large_folder_and_a_long_file_are_found(tmp_path: Path) -> None:
    room = tmp_path / "ops" / "collops" / "core"
    (room / "__pycache__").mkdir(parents=True)
    for number in range(MOST_ENTRIES):
        (room / f"{number}.h").write_text("\n" * MOST_LINES)
    assert (large_folders(tmp_path), long_files(tmp_path)) == ({}, {})
    (room / "one_more.cpp").write_text("\n" * (MOST_LINES + 1))
    assert large_folders(tmp_path) == {"ops/collops/core": MOST_ENTRIES + 1}
    assert long_files(tmp_path) == {"ops/collops/core/one_more.cpp": MOST_LINES + 1}


def test_no_two_modules_of_the_tests_share_a_name() -> None:
    """Rooms whose modules others import stand on one path, and a C++ test is a program's name."""
    paths = [Path(name) / file for name, _, files in folders_below(ROOT) for file in files]
    tests = [path for path in paths if path.parts[0] == "tests"]
    for kind in (
        [p.name for p in tests if p.suffix == ".py" and not p.name.startswith(("test_", "conf"))],
        [p.name for p in tests if p.name.endswith("_test.cpp")],
    ):
        assert sorted(kind) == sorted(set(kind))
