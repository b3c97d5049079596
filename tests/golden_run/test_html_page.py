"""`collops golden run --html`: one page that needs no other file and no JavaScript."""

from __future__ import annotations

import base64
import importlib.util
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from collops.golden.case_files.manifest import write_cases
from collops.golden.cases import all_cases

from collops.cli import main
from tests import programs

CaseFile = Callable[..., Path]


class Page(HTMLParser):
    """The tags, the links, the ids and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.pictures: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        for name, value in attrs:
            found = {"href": self.links, "id": self.ids, "src": self.pictures}.get(name)
            if found is not None:
                found.append(str(value))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(folder: Path, *words: object) -> Page:
    """The page that a run writes."""
    path = folder / "report.html"
    done = programs.run_forked(main, ["golden", "run", *map(str, words), "--html", str(path)])
    assert f"report: {path}\n" in done.stdout, done.stderr
    page = Page(path.read_text())
    assert page.open == []
    return page


def test_a_row_per_case_with_links_to_the_rows_of_the_case_file(
    case_file: CaseFile, tmp_path: Path
) -> None:
    name = "more & <less>"
    path = case_file({"CaseName": name}, {"OutShape": "8,6"}, {"operator": "FillOperation"})
    path.rename(tmp_path / "my cases.csv")
    path = tmp_path / "my cases.csv"
    page = page_of(tmp_path, path)
    anchors = [f"{path}:{line}".replace(" ", "_") for line in (2, 3, 4)]
    assert page.ids == anchors
    assert {link.removeprefix("#") for link in page.links if link[0] == "#"} == set(anchors)
    assert "my cases.csv" in page.links
    assert page.text.count(name) >= 2  # its name, and the cell of the row
    assert "1 failed" in page.text and "1 skipped" in page.text and "1 passed" in page.text
    assert "got other outputs on all ranks: infer_shape" in page.text
    assert "FillOperation is not an operator of collops" in page.text
    assert re.search(r"OutShape +8,6\n", page.text)
    assert "collops golden run" in page.text and "numpy" in page.text
    assert "script" not in page.tags and "link" not in page.tags


def test_a_wrong_output_has_its_explanation_and_its_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    cases = all_cases("all_gather_v", text="p2.shares-3-5")
    manifest = write_cases(cases, tmp_path)
    path = tmp_path / f"{cases[0].id}.npz"
    with np.load(path) as tensors:
        changed = {name: tensors[name].copy() for name in tensors.files}
    changed["rank1/output"][2, 1] += 1
    np.savez(path, **changed)
    page = page_of(tmp_path, manifest, "--plot", tmp_path / "first.png")
    assert "rank 1 row 2 column 1" in page.text
    assert '"operator": "all_gather_v"' in page.text
    [picture] = page.pictures
    head, _, data = picture.partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data).startswith(b"\x89PNG")
    assert base64.b64decode(data) == (tmp_path / "first.png").read_bytes()


def test_without_matplotlib_the_page_says_so(
    case_file: CaseFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: found(name) if name != "matplotlib" else None
    )
    page = page_of(tmp_path, case_file({}))
    assert "There are no plots: they need matplotlib." in page.text
    assert page.pictures == []


def test_a_page_that_cannot_be_written_is_an_error_before_the_run(case_file: CaseFile) -> None:
    words = ["golden", "run", str(case_file({})), "--html", "/nonexist/x.html"]
    done = programs.run_forked(main, words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--html /nonexist/x.html: there is no folder /nonexist" in done.stderr
