"""The tutorials: their programs run, their commands print what the pages show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tutorial_notebook
from patience import patience
from tests.unit.docs import page_session

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "tutorials"
# Runs the cells of a notebook in one namespace, as Jupyter does, and prints what each has printed.
RUN_CELLS = """
import contextlib, io, json, sys
outputs, names = [], {"__name__": "__main__"}
for source in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(source, "cell", "exec"), names)
    outputs.append(printed.getvalue())
print(json.dumps(outputs))
"""


@pytest.mark.parametrize("name", ["from_atb", "own_operator", "tuning"])
def test_the_tutorial_shows_what_its_commands_print(name: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page_session.check(FOLDER / f"{name}.md", tmp_path)


def test_every_tutorial_is_run() -> None:
    pages = {page.stem for page in FOLDER.glob("*.md")}
    notebooks = {page.stem for page in tutorial_notebook.PAGES}
    assert pages == {"from_atb", "own_operator", "tuning", *notebooks}


@pytest.mark.parametrize("page", tutorial_notebook.PAGES, ids=lambda page: page.stem)
def test_the_notebook_is_that_of_its_page(page: Path) -> None:
    assert page.with_suffix(".ipynb").read_text() == tutorial_notebook.text(page), (
        "run: python tools/tutorial_notebook.py"
    )


@pytest.mark.parametrize("page", tutorial_notebook.PAGES, ids=lambda page: page.stem)
def test_the_cells_of_the_notebook_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    if "import torch" in page.read_text():
        pytest.importorskip("torch")
    cells = json.loads(page.with_suffix(".ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    shown = ["".join(line for out in cell["outputs"] for line in out["text"]) for cell in code]
    done = subprocess.run(
        [sys.executable, "-c", RUN_CELLS],
        input=json.dumps(["".join(cell["source"]) for cell in code]),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=patience(60),
    )
    assert done.returncode == 0
    assert len(code) >= 6
    assert json.loads(done.stdout) == shown
