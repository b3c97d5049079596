"""docs/clients.md names the tests that there are, and the programs whose times they note."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/clients.md").read_text()


def test_the_tests_of_each_program_exist() -> None:
    named = re.findall(r"^\| .* \| (tests/\S+) \|$", PAGE, re.MULTILINE)
    assert len(named) > 10
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_times_beside_gloo_are_those_that_tests_note() -> None:
    tests = (path.read_text() for path in (ROOT / "tests/clients").glob("test_*.py"))
    noted = {row for text in tests for row in re.findall(r'note\("(.+?)", "(.+?)", ', text)}
    table = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [\d.]+ us \| [\d.]+ us \|$", PAGE, re.MULTILINE)
    assert sorted(table) == sorted(noted)
