"""Every Python block of README.md and docs/ runs as it stands, each in a fresh process.

A block right after the comment `<!-- no-run: reason -->` is left out. The blocks of a tutorial
build on each other: test_tutorials runs them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from patience import patience

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = patience(100)
BLOCK = re.compile(
    r"(?:<!-- no-run: (?P<reason>.+?) -->\s*\n)?^```python[^\n]*\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    """One block of code, and where it stands."""

    name: str
    line: int
    code: str
    reason: str | None


def read_blocks(path: Path, name: str) -> list[Block]:
    """The Python blocks of one page."""
    text = path.read_text()
    return [
        Block(name, text.count("\n", 0, match.start("code")) + 1, match["code"], match["reason"])
        for match in BLOCK.finditer(text)
    ]


def run_block(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a block as a file; its lines keep their numbers, so that errors point to the page."""
    script = folder / "block.py"
    script.write_text("\n" * (block.line - 1) + block.code)
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        timeout=LIMIT_S,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    block
    for page in PAGES
    if page.exists() and page.parent.name != "tutorials" and ".zh-CN" not in page.name
    for block in read_blocks(page, str(page.relative_to(ROOT)))
    if block.reason is None
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.name}:{block.line}")
def test_block_runs(block: Block, tmp_path: Path) -> None:
    done = run_block(block, tmp_path)
    assert done.returncode == 0, f"{block.name}:{block.line}\n{done.stdout}"
