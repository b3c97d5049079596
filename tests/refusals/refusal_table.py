"""Reads and writes refusals.txt, the table of wrong calls and what they are told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.refusals.right_calls import GROUPS, RIGHT

PATH = Path(__file__).with_name("refusals.txt")
BRACKETS = re.compile(r"\[([\w -]+)\] (.*)")
VARIABLE = re.compile(r"([A-Z][A-Z_]+)=(\S*) (.*)")


@dataclass
class Row:
    """A line: whom it is about, what is wrong, and what each of them is told."""

    kind: str
    words: dict[str, str]
    names: tuple[str, ...]
    whole: tuple[str, ...]  # the operators of the section
    program: str
    said: str
    right: str = ""  # what the other ranks call meanwhile
    variables: dict[str, str] = field(default_factory=dict)
    above: list[str] = field(default_factory=list)  # the lines before it, which are no rows

    def expected(self, name: str = "") -> str:
        """What is said to the operator of that name."""
        return self.said.replace("~", name)

    def fault(self) -> tuple[Any, ...]:
        """What is the same in rows that may be one."""
        return self.kind, self.whole, self.program, self.variables


def operators(text: str) -> tuple[str, ...]:
    """The operators of groups and names, "-" before those that are left out."""
    found: dict[str, None] = {}
    for word in text.split():
        of_word = GROUPS.get(word.lstrip("-")) or (word.lstrip("-"),)
        assert set(of_word) <= set(RIGHT), word
        for name in of_word:
            if word.startswith("-"):
                del found[name]
            else:
                found[name] = None
    return tuple(found)


@cache
def read() -> tuple[list[Row], list[str]]:
    """The rows of the file, and what stands behind the last one."""
    rows: list[Row] = []
    above: list[str] = []
    kind, words, names, right = "", {}, (), ""
    for line in PATH.read_text().splitlines():
        if line.startswith("== "):
            kind, _, rest = line[3:].partition(": ")
            words = dict(word.split("=", 1) for word in rest.split() if "=" in word)
            names = operators(" ".join(word for word in rest.split() if "=" not in word))
            right = ""
        elif line.startswith("= "):
            right = line[2:]
        if not line or line[0] in "#=":
            above.append(line)
            continue
        bracketed = BRACKETS.fullmatch(line)
        brackets, line = bracketed.groups() if bracketed else ("", line)
        variables = {}
        while variable := VARIABLE.fullmatch(line):
            variables[variable[1]], line = variable[2], variable[3]
        program, _, said = line.partition(" ! ")
        whole = " ".join(names) if brackets.startswith("-") else ""
        of_row = operators(f"{whole} {brackets}") if brackets else names
        rows.append(Row(kind, words, of_row, names, program, said, right, variables, above))
        above = []
    return rows, above


def brief(names: tuple[str, ...], whole: tuple[str, ...]) -> str:
    """What stands before a row of these operators, in a section of those."""
    if names == whole:
        return ""
    groups = [group for group, of_group in GROUPS.items() if of_group == names]
    ways = [*groups, " ".join(names)]
    if set(names) <= set(whole):
        ways.append(" ".join(f"-{name}" for name in whole if name not in names))
    return f"[{min(ways, key=len)}] "


def write(heard: dict[tuple[int, str], str]) -> None:
    """Replaces the file. Rows of one fault are joined where operators are told the same."""
    rows, behind = read()
    lines: list[str] = []
    at = 0
    while at < len(rows):
        row, end = rows[at], at + 1
        while end < len(rows) and row.names and rows[end].fault() == row.fault():
            end += 1
        told: dict[str, list[str]] = {}
        for number, one in enumerate(rows[at:end], at):
            for name in one.names or ("",):
                text = heard.get((number, name), one.expected(name))
                told.setdefault(
                    re.sub(rf"\b{name}(Param)?\b", r"~\1", text) if name else text, []
                ).append(name)
        lines += row.above
        variables = "".join(f"{name}={value} " for name, value in row.variables.items())
        for text, of_text in told.items():
            names = tuple(name for name in RIGHT if name in of_text)
            before = brief(names, row.whole) if names else ""
            lines.append(f"{before}{variables}{row.program} ! {text}")
        at = end
    PATH.write_text("\n".join([*lines, *behind]) + "\n")


def sections(kind: str) -> list[list[tuple[int, Row]]]:
    """The rows of a kind with their numbers, section by section."""
    of_kind = [(number, row) for number, row in enumerate(read()[0]) if row.kind == kind]
    return [list(part) for _, part in groupby(of_kind, key=lambda one: id(one[1].words))]
