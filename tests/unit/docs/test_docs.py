"""Checks of the docs: links, error codes, fields of structs, signatures of methods, steps."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import collops
import documented_commands
from collops.atb.param import Param
from collops.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("README*.md")), ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"\bERROR_[A-Z_]+\b")
STRUCTS: list[Any] = [getattr(collops, name) for name in collops.__all__ if name.endswith("Param")]
PLAIN = {
    "all_gather_v": "all_gatherv",
    "reduce_scatter_v": "reduce_scatterv",
    "all_to_all_v": "all_to_allv",
    **{stem: stem for stem in ("all_gather", "reduce_scatter", "all_reduce", "broadcast")},
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> str:
    """A page without its code."""
    return INLINE.sub("", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as web pages of repositories spell them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(prose(page.read_text())):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_every_page_is_listed() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / link).resolve() for link in LINK.findall(index.read_text())}
    assert [name_of(page) for page in PAGES if page not in {*linked, index}] == []


def error_numbers() -> dict[str, int]:
    """Name and number of every code."""
    text = (ROOT / "ops/collops/core/status.h").read_text()
    return {name: int(number) for name, number in re.findall(r"\b(ERROR_\w+) = (\d+),", text)}


def returned_codes() -> set[str]:
    """The codes that a source uses, apart from where they are defined."""
    found = []
    for folder in ("ops", "bindings", "python/collops"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in {".h", ".cpp"} and path.stem != "status":
                found += CODE.findall(re.sub(r"//.*", "", path.read_text()))
            elif path.suffix == ".py" and path.name != "errors.py":
                found += re.findall(r"ErrorCode\.(ERROR_\w+)", path.read_text())
    return set(found) & error_numbers().keys()


def test_every_code_is_on_the_page() -> None:
    page = (DOCS / "errors.md").read_text()
    numbers = error_numbers()
    assert len(numbers) == 34
    missing = [name for name, number in numbers.items() if f"{number} `{name}`" not in page]
    assert missing == []


def test_what_is_returned_and_nothing_else_has_a_section() -> None:
    page = (DOCS / "errors.md").read_text()
    sections = re.findall(r"^### (\d+) `(\w+)`$", page, re.MULTILINE)
    returned = returned_codes()
    assert sections == [
        (str(number), name) for name, number in error_numbers().items() if name in returned
    ]


def page_of(struct: Any) -> Path:
    """AllGatherVParam is on all_gather_v.md."""
    stem = re.sub(r"(?<!^)(?=[A-Z])", "_", struct.__name__.removesuffix("Param")).lower()
    return DOCS / "operators" / f"{stem}.md"


# Where ATB's name is not the one that follows from Python's.
ATBS_OWN = {"twoDimTpInfo": "twoDimTPInfo"}


def rows_of_fields(struct: Any) -> list[tuple[str, str, str]]:
    """How each field begins its row: its names and its default as JSON."""
    rows = []
    for field in dataclasses.fields(struct):
        value = getattr(struct() if isinstance(struct, type) else struct, field.name)
        default = "zeros" if isinstance(value, bytes) else json_of(value)
        first, *others = field.name.split("_")
        camel = first + "".join(word.capitalize() for word in others)
        rows.append((ATBS_OWN.get(camel, camel), field.name, default))
    return rows


def json_of(value: Any) -> str:
    """A field's value as JSON; a struct inside has the rows of its own fields."""
    if not dataclasses.is_dataclass(value):
        return json.dumps(value)
    return "{" + ", ".join(f'"{key}": {default}' for key, _, default in rows_of_fields(value)) + "}"


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_has_a_row(struct: Any) -> None:
    text = page_of(struct).read_text()
    assert f"`{struct.__name__}`" in text
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(.+?)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(rows_of_fields(struct))


def test_there_are_structs() -> None:
    assert set(Param.__subclasses__()) == set(STRUCTS)
    assert {collops.AllGatherVParam, collops.LinearParallelParam} <= set(STRUCTS)


@pytest.mark.parametrize(("stem", "method"), PLAIN.items())
def test_the_plain_form_is_that_of_the_code(stem: str, method: str) -> None:
    signature = inspect.signature(getattr(collops.Communicator, method))
    arguments = [
        name if default.default is default.empty else f"{name}={default.default!r}"
        for name, default in signature.parameters.items()
    ]
    form = f"out = comm.{method}({', '.join(arguments[1:])})".replace("'", '"')
    assert f"```text\n{form}\n```" in (DOCS / "operators" / f"{stem}.md").read_text()


def sections_of(page: Path) -> dict[str, str]:
    """The text below each heading of the second level."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_table_of_commands_names_every_command() -> None:
    text = (DOCS / "commands.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)


@pytest.mark.parametrize("what", ["an operator", "a backend"])
def test_steps_are_counted(what: str) -> None:
    [(heading, text)] = [
        item
        for item in sections_of(ROOT / "CONTRIBUTING.md").items()
        if item[0].startswith(f"Add {what} in ")
    ]
    steps = re.findall(r"^(\d+)\. ", text, re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    assert heading == f"Add {what} in {len(steps)} steps"


def test_files_that_are_named_exist() -> None:
    named = re.findall(
        r"`([\w./{},*-]+\.(?:py|h|cpp|md|\{h,cpp\}))`", "".join(page.read_text() for page in PAGES)
    )
    known = {
        str(path.relative_to(ROOT))
        for folder in "bench ops bindings python golden tests docs examples tools".split()
        for path in (ROOT / folder).rglob("*.*")
    } | {path.name for path in ROOT.iterdir()}
    steps = [
        step for page in documented_commands.pages() for step in documented_commands.steps_of(page)
    ]
    known |= {step.title for step in steps if step.title}  # which the pages write themselves
    assert len(named) > 20
    missing = []
    for token in named:
        for name in [token.replace("{h,cpp}", end) for end in ("h", "cpp")]:
            pattern = re.compile(r"(.*/)?" + re.escape(name).replace(r"\*", ".*"))
            if not any(pattern.fullmatch(path) for path in known):
                missing.append(name)
    assert missing == []
