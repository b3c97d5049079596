"""Every Python block of README.md and docs/ runs as it stands, each in a fresh process.

A block right after the comment `<!-- no-run: reason -->` is left out, and one with a title is a
file. The blocks of a tutorial build on each other: test_tutorials runs them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import documented_commands
from documented_commands import Step
from patience import patience

LIMIT_S = patience(100)
BLOCKS = [
    step
    for page in documented_commands.pages()
    if page.parent.name != "tutorials"
    for step in documented_commands.steps_of(page)
    if step.kind == "program" and step.reason is None
]


def run_block(block: Step, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a block as a file; its lines keep their numbers, so that errors point to the page."""
    script = folder / "block.py"
    script.write_text("\n" * (block.line - 1) + block.text)
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        timeout=LIMIT_S,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_block_runs(block: Step, tmp_path: Path) -> None:
    if "import torch" in block.text:
        pytest.importorskip("torch")
    done = run_block(block, tmp_path)
    assert done.returncode == 0, f"{block.page}:{block.line}\n{done.stdout}"
