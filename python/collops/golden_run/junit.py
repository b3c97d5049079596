"""The outcomes of a run as JUnit XML, which continuous integration servers read."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from collops.golden_run.outcome import DIFFERS, FAILED, SKIPPED, Outcome, Summary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
        # Most failures have the same first line, the expectation; the lines with "got" differ.
        got = "; ".join(line for line in text.splitlines() if line.startswith("got "))
        ElementTree.SubElement(case, "failure", message=got or first).text = text
    elif outcome.state == SKIPPED:
        ElementTree.SubElement(case, "skipped", message=first)
    elif outcome.state == DIFFERS:
        words = f"differs from ATB by intent: {first}"
        ElementTree.SubElement(case, "skipped", message=words)
    return case


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
