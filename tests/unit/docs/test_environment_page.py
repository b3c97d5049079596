"""docs/environment.md equals the core's table of variables, which has every variable."""

from __future__ import annotations

import re
from pathlib import Path

import document_variables
from collops.core import core

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_the_table() -> None:
    assert document_variables.PAGE.read_text() == document_variables.page(), (
        "run: python tools/document_variables.py"
    )


def test_every_variable_that_the_sources_name_is_in_the_table() -> None:
    known = {name for name, _, _ in core().env_variables()}
    sources = [*ROOT.glob("ops/**/*.cpp"), *ROOT.glob("bindings/*.cpp")]
    sources += ROOT.glob("python/collops/**/*.py")
    named = {
        name for path in sources for name in re.findall(r'"(COLLOPS_[A-Z_]+)', path.read_text())
    }
    named -= {"COLLOPS_"}
    assert len(named) > 5
    assert named <= known, f"not in EnvVariables(): {sorted(named - known)}"
