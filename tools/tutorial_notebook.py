"""Writes the notebooks of tutorials from their pages; a test compares the two."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "tutorials"
PAGES = [FOLDER / "uneven_inference.md", FOLDER / "pytorch.md"]
# A block of Python, and the block of its output if one follows.
CELL = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def lines(text: str) -> list[str]:
    """A text as notebooks store it: lines that keep their ends, but for the last one."""
    return text.strip("\n").splitlines(keepends=True)


def prose(text: str) -> dict[str, Any]:
    """A cell of Markdown; the sentence that names the notebook is the page's alone."""
    text = re.sub(r"^The same text is available as a notebook: .*\n", "", text, flags=re.MULTILINE)
    return {"cell_type": "markdown", "source": lines(text)}


def code(match: re.Match[str]) -> dict[str, Any]:
    """A cell of Python with its output."""
    outputs = [{"name": "stdout", "output_type": "stream", "text": [match["output"]]}]
    return {
        "cell_type": "code",
        "execution_count": None,
        "outputs": outputs if match["output"] else [],
        "source": lines(match["code"]),
    }


def notebook(page: str) -> dict[str, Any]:
    """The notebook of a page, in nbformat 4.5."""
    cells, begin = [], 0
    for match in CELL.finditer(page):
        cells += [prose(page[begin : match.start()]), code(match)]
        begin = match.end()
    cells.append(prose(page[begin:]))
    cells = [
        {"id": f"cell-{number}", "metadata": {}, **cell}
        for number, cell in enumerate(cells)
        if cell["source"]
    ]
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def text(page: Path) -> str:
    """The file of a page's notebook."""
    return json.dumps(notebook(page.read_text()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in PAGES:
        each.with_suffix(".ipynb").write_text(text(each))
