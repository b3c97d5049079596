"""What a file may be: no header with one user, and no two C++ tests with one name."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MADE = {"__pycache__", "build", "dist", "out"}
# Headers that others look for by name: of programs that use the library, also in C; a backend's
# entry; and its communicator, whose calls stand in a file of their own; what a test compares with
# the declarations of XLA.
PUBLIC = re.compile(r"^    ([\w/. ]+\.h\b.*)$", re.MULTILINE)
ENTRIES = {"backend.h", "communicator.h", "collops_c.h", "ffi.h"}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def is_made(name: str) -> bool:
    """Whether a build or a run has made it."""
    return name in MADE or name.startswith(".") or name.endswith((".egg-info", ".so", ".pyc"))


def files_below(root: Path, top: str) -> Iterator[Path]:
    """Every file of the sources below a folder."""
    for path, folders, files in os.walk(root / top):
        folders[:] = sorted(name for name in folders if not is_made(name))
        yield from (Path(path) / name for name in sorted(files) if not is_made(name))


def headers_with_one_user(root: Path) -> dict[str, str]:
    """The headers that one file alone includes, besides their own .cpp; and that file.

    A header of the library whose one user is in the bindings is where the layers meet.
    """
    sources = [
        path
        for top in ("ops", "bindings")
        for path in files_below(root, top)
        if path.suffix in {".h", ".cpp", ".cu"}
    ]
    users: dict[str, set[Path]] = defaultdict(set)
    for source in sources:
        for name in INCLUDE.findall(source.read_text()):
            users[name].add(source)
    install = root / "cmake" / "install.cmake"
    public = (
        set(" ".join(PUBLIC.findall(install.read_text())).split()) if install.exists() else set()
    )
    found = {}
    for header in sources:
        top = "ops" if root / "ops" in header.parents else "bindings"
        name = str(header.relative_to(root / top))
        if (
            header.suffix != ".h"
            or header.name in ENTRIES
            or name.removeprefix("collops/") in public
        ):
            continue
        others = [user for user in users[name] if user.with_suffix("") != header.with_suffix("")]
        if len(others) < 2 and (not others or root / top in others[0].parents):
            found[f"{top}/{name}"] = str(others[0].relative_to(root)) if others else ""
    return found


def test_no_header_has_one_user() -> None:
    """It belongs into that user."""
    assert headers_with_one_user(ROOT) == {}


def test_no_two_cpp_tests_share_a_name() -> None:
    """It is the name of a program, or of a test of ctest."""
    names = [path.name for path in files_below(ROOT, "tests") if path.name.endswith("_test.cpp")]
    assert sorted(names) == sorted(set(names))
