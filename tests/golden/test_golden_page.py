"""The examples of docs/golden.md print the output on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.docs import page_session

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "golden.md"


def test_the_examples_are_true(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert len(page_session.BLOCK.findall(PAGE.read_text())) >= 7
    page_session.check(PAGE, tmp_path)


@pytest.mark.parametrize("word", ["list", "generate", "compare", "run"])
def test_every_command_has_a_section(word: str) -> None:
    assert f"\n## {word}\n" in PAGE.read_text()


@pytest.mark.parametrize("words", ["compare a.npy", "list --op x", "compare --help"])
def test_commands_speak_of_themselves_by_the_name_they_were_called(
    tmp_path: Path, words: str
) -> None:
    printed = page_session.run(f"collops golden {words}", tmp_path)
    assert "collops golden" in printed
    assert "collops.golden" not in printed
