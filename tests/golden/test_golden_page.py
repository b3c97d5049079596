"""The examples of docs/golden.md print the output on the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import own_output
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "golden.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(command: str, folder: Path) -> str:
    """The output of a command, and its exit status if that is not 0."""
    python = shlex.quote(sys.executable)
    shell = f'python() {{ {python} "$@"; }}\ncollops() {{ python -m collops.cli "$@"; }}\n{command}'
    done = own_output.run(
        ["sh", "-c", shell],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    return done.stdout + (f"[status {done.returncode}]\n" if done.returncode else "")


def without_rates(text: str) -> str:
    """A text in which no time shows, and no version."""
    text = re.sub(r"^for an issue: collops .*$", "for an issue: ...", text, flags=re.MULTILINE)
    return re.sub(r"[0-9.]+ cases per second", "N cases per second", text)


def session(text: str, folder: Path) -> str:
    """The page with the current output of the commands in its console blocks."""

    def replay(match: re.Match[str]) -> str:
        kind, body = match.groups()
        if kind == "python":
            assert run(f"python -c {shlex.quote(body)}", folder) == ""
            return match[0]
        commands = [line for line in body.splitlines() if line.startswith("$ ")]
        printed = [f"{line}\n{run(line[2:], folder)}" for line in commands]
        return f"```console\n{''.join(printed)}```"

    return BLOCK.sub(replay, text)


def test_the_examples_are_true(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text = PAGE.read_text()
    assert len(BLOCK.findall(text)) >= 7
    again = session(text, tmp_path)
    if os.environ.get("COLLOPS_REWRITE_PAGES"):
        PAGE.write_text(again)
    assert without_rates(again) == without_rates(text)


def test_another_output_would_be_noticed(tmp_path: Path) -> None:
    page = "```console\n$ echo one\ntwo\n$ false\n```\n"
    assert session(page, tmp_path) == "```console\n$ echo one\none\n$ false\n[status 1]\n```\n"


@pytest.mark.parametrize("word", ["list", "generate", "compare", "run"])
def test_every_command_has_a_section(word: str) -> None:
    assert f"\n## {word}\n" in PAGE.read_text()


@pytest.mark.parametrize("words", ["compare a.npy", "list --op x", "compare --help"])
def test_commands_speak_of_themselves_by_the_name_they_were_called(
    tmp_path: Path, words: str
) -> None:
    printed = run(f"collops golden {words}", tmp_path)
    assert "collops golden" in printed
    assert "collops.golden" not in printed
