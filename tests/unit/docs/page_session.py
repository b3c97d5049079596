"""Replays a page of docs/: writes its files, runs its commands, and returns the page as it is now.

- A Python block with a title is a file of that name.
- A console block has commands, each behind `$ `, and their output.
- After the comment `<!-- varies -->` the output depends on the machine: only its lines without a
  digit are compared, as the heads of tables are.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from patience import patience
from tests import programs

BLOCK = re.compile(
    r"(?P<varies><!-- varies -->\n)?^```(?P<kind>python|console)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PROGRAMS = {"python": "", "collops": " -m collops"}
LIMIT_S = patience(60)


def environment(folder: Path) -> dict[str, str]:
    """An environment in which `python` and `collops` are those of this interpreter."""
    programs = folder / ".programs"
    programs.mkdir(exist_ok=True)
    for name, words in PROGRAMS.items():
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{words} "$@"\n')
        path.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def run(command: str, folder: Path) -> str:
    """The output of a command, and its exit status if that is not 0."""
    done = programs.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
    )
    return done.stdout + (f"[status {done.returncode}]\n" if done.returncode else "")


def commands_of(body: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output below it."""
    parts = re.split(r"^\$ (.*)\n", body, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def is_like(printed: str, shown: str) -> bool:
    """Whether an output that varies has the lines without digits of the one on the page."""
    # Columns are as wide as their numbers.
    now, then = ([re.sub(r"[ -]+", " ", line) for line in t.splitlines()] for t in (printed, shown))
    fixed = {line for line in then if not re.search(r"\d", line)}
    return "[status" not in printed and fixed <= set(now)


def replay(page: str, folder: Path) -> str:
    """The page with the current output of the commands in its console blocks."""

    def block(match: re.Match[str]) -> str:
        if match["title"]:
            (folder / match["title"]).write_text(match["body"])
        elif match["kind"] == "python":
            assert run(f"python -c {shlex.quote(match['body'])}", folder) == ""
        if match["kind"] == "python":
            return match[0]
        text = ""
        for command, shown in commands_of(match["body"]):
            printed = run(command, folder)
            same = match["varies"] and is_like(printed, shown)
            text += f"$ {command}\n{shown if same else printed}"
        return f"{match['varies'] or ''}```console\n{text}```"

    return BLOCK.sub(block, page)


def without_times(text: str) -> str:
    """A text in which no time, no process id and no version shows."""
    text = re.sub(r"^for an issue: collops .*$", "for an issue: ...", text, flags=re.MULTILINE)
    text = re.sub(r"[0-9.]+ cases per second", "N cases per second", text)
    return re.sub(r"(pid )\d+|( in )[0-9.]+s\b", r"\1\2N", text)


def check(page: Path, folder: Path) -> None:
    """Fails unless the page shows what its commands print; COLLOPS_REWRITE_PAGES=1 rewrites it."""
    text = page.read_text()
    again = replay(text, folder)
    if os.environ.get("COLLOPS_REWRITE_PAGES"):
        page.write_text(again)
    pages = [without_times(each).splitlines() for each in (text, again)]
    changes = list(difflib.unified_diff(*pages, "the page", "printed now", lineterm=""))
    assert not changes, "\n".join(changes)
