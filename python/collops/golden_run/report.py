"""The outcomes of a run as files: one HTML page with the plots inside, and JUnit XML."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from collops.golden.case_files.case_fields import fields_of
from collops.golden_run.calls import CaseCall
from collops.golden_run.runner import DIFFERS, FAILED, PASSED, SKIPPED, Outcome, Summary

if TYPE_CHECKING:
    from collops.golden_run.jobs import Job


STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
.count { display: inline-block; margin: 0 1em .5em 0; padding: .3em .8em; border-radius: .4em;
  background: var(--soft); border-left: .3em solid var(--line); }
.count.passed, .state.passed { border-color: #2a9d4a; } .state.passed { color: #2a9d4a; }
.count.failed, .state.failed { border-color: #d33; }
.state.failed { color: #d33; font-weight: bold; }
.state.skipped, .state.differs { color: #b07a00; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2em 1em; }
dt { font-weight: bold; } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25em .6em; vertical-align: top; }
tr + tr:not(.more) { border-top: 1px solid var(--line); }
tr:target, tr:target + tr { background: #fc03; }
.more td { padding-top: 0; } .more p { margin: .2em 0; }
pre { background: var(--soft); padding: .6em .8em; margin: .3em 0; white-space: pre-wrap;
  overflow-wrap: anywhere; }
img { max-width: 100%; background: white; display: block; margin: .5em 0; }
summary { cursor: pointer; } td pre { font-size: .85em; }
"""


_WORDS = {
    PASSED: "passed",
    FAILED: "failed",
    DIFFERS: "differ from ATB by intent",
    SKIPPED: "skipped",
}
_HEAD = ("case", "name", "operator", "ranks", "outcome", "ms", "place")


@dataclass(frozen=True)
class About:
    """What the head of the page says of a run: command, installation, time, and notes."""

    command: str
    installation: str
    begun: str
    notes: tuple[str, ...] = ()


def write_page(summary: Summary, path: Path, about: About) -> None:
    """Writes the page.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text("\n".join(_page(summary, path, about)) + "\n", encoding="utf-8")


def _page(summary: Summary, path: Path, about: About) -> Iterator[str]:
    problem = summary.problem()
    title = f"collops golden run: {problem or 'all passed'}"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f"<h1>{escape(title)}</h1>"
    yield from _summary(summary, about)
    for file, outcomes in groupby(summary.outcomes, key=lambda outcome: outcome.job.file):
        yield f"<h2>{_file_link(file, path, str(file))}</h2>\n<table>"
        yield f"<tr>{''.join(f'<th>{word}</th>' for word in _HEAD)}</tr>"
        for outcome in outcomes:
            yield from _rows(outcome, path)
        yield "</table>"
    yield "</body>\n</html>"


def _summary(summary: Summary, about: About) -> Iterator[str]:
    counts = "".join(
        f'<span class="count {state}"><b>{summary.count(state)}</b> {word}</span>'
        for state, word in _WORDS.items()
    )
    yield f'<p class="counts">{counts}</p>\n<dl>'
    said = {"command": about.command, "installation": about.installation, "begun": about.begun}
    said["seconds"] = f"{summary.seconds:.1f}, {summary.rate:.1f} cases per second"
    for name, text in said.items():
        yield f"<dt>{name}</dt><dd>{escape(text)}</dd>"
    yield "</dl>"
    yield from (f"<p>{escape(note)}</p>" for note in about.notes)
    failed = [outcome for outcome in summary.outcomes if outcome.state == FAILED]
    if failed:
        yield "<h2>Failed</h2>\n<ul>"
        for outcome in failed:
            yield f'<li><a href="#{_anchor(outcome.job)}">{escape(str(outcome.job))}</a></li>'
        yield "</ul>"


def _rows(outcome: Outcome, path: Path) -> Iterator[str]:
    """The row of a case, which opens to the case itself, and below it why it is not passed."""
    job, state = outcome.job, outcome.state
    number = "#" if job.number is None else str(job.number)
    name, statement = escape(job.name) or "-", escape(_statement(job))
    cells = [
        f'<a href="#{_anchor(job)}">{number}</a>',
        f"<details><summary>{name}</summary><pre>{statement}</pre></details>",
        escape(job.call.operator) if job.call else "-",
        str(job.call.rank_size) if job.call else "-",
        f'<span class="state {state}">{state}</span>',
        f"{outcome.seconds * 1e3:.1f}" if outcome.seconds else "-",
        _file_link(job.file, path, f"line {job.line}" if job.line else job.file.name),
    ]
    yield f'<tr id="{_anchor(job)}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
    if not outcome.text:
        return
    kind = "pre" if state == FAILED else "p"
    yield f'<tr class="more"><td></td><td colspan="{len(_HEAD) - 1}">'
    yield f"<{kind}>{escape(outcome.text)}</{kind}>"
    for picture in outcome.pictures:
        data = base64.b64encode(picture).decode()
        words = escape(f"plot of the errors of {job}")
        yield f'<img alt="{words}" src="data:image/png;base64,{data}">'
    yield "</td></tr>"


def _anchor(job: Job) -> str:
    """The name of a case's row, for links such as report.html#cases.csv:27."""
    place = job.line or job.number or job.name
    return escape("_".join(f"{job.file}:{place}".split()))


def _file_link(file: Path, page: Path, words: str) -> str:
    """A link that holds as long as the page and the file stay where they are to each other."""
    target = os.path.relpath(file, page.parent)
    return f'<a href="{escape(target)}">{escape(words)}</a>'


def _statement(job: Job) -> str:
    """The case as its file states it: the cells of a row, or the fields of a case."""
    if isinstance(job.call, CaseCall):
        return json.dumps(fields_of(job.call.case), indent=1)
    lines = _lines(job.file)
    if not 0 < job.line <= len(lines):
        return ""
    names, cells = ([cell.strip() for cell in lines[i].split("|")] for i in (0, job.line - 1))
    pairs = zip(names, cells, strict=False)
    return "\n".join(f"{name:<14} {cell}" for name, cell in pairs if cell)


@cache
def _lines(file: Path) -> list[str]:
    """The lines of a case file, where the first one that is not blank comes first."""
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip())
    return [lines[first], *lines[1:]]


# Characters that XML 1.0 does not allow.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(summary: Summary, path: Path) -> None:
    """Writes one test suite per case file; cases that differ by intent count as skipped.

    Raises:
        OSError: the file cannot be written.
    """
    root = ElementTree.Element("testsuites", name="collops golden run")
    for file, outcomes in groupby(summary.outcomes, key=lambda outcome: outcome.job.file):
        root.append(_suite(str(file), list(outcomes)))
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _suite(name: str, outcomes: Sequence[Outcome]) -> ElementTree.Element:
    failed = sum(outcome.state == FAILED for outcome in outcomes)
    skipped = sum(outcome.state in (SKIPPED, DIFFERS) for outcome in outcomes)
    suite = ElementTree.Element(
        "testsuite",
        name=_clean(name),
        tests=str(len(outcomes)),
        failures=str(failed),
        errors="0",
        skipped=str(skipped),
        time=f"{sum(outcome.seconds for outcome in outcomes):.3f}",
    )
    for outcome in outcomes:
        suite.append(_case(name, outcome))
    return suite


def _case(suite: str, outcome: Outcome) -> ElementTree.Element:
    job = outcome.job
    name = " ".join(str(part) for part in (job.number, job.name) if part not in (None, ""))
    case = ElementTree.Element(
        "testcase", classname=_clean(suite), name=_clean(name), time=f"{outcome.seconds:.3f}"
    )
    text = _clean(outcome.text)
    first = text.partition("\n")[0]
    if outcome.state == FAILED:
        # Most failures have the same first line, the expectation; how they ended differs.
        message = _clean(outcome.got) or first
        ElementTree.SubElement(case, "failure", message=message).text = text
    elif outcome.state == SKIPPED:
        ElementTree.SubElement(case, "skipped", message=first)
    elif outcome.state == DIFFERS:
        words = f"differs from ATB by intent: {first}"
        ElementTree.SubElement(case, "skipped", message=words)
    return case


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
