"""Colours and the line of progress: on a terminal alone."""

from __future__ import annotations

import io

import pytest

from collops.terminal import Progress, colored


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_terminal_with_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(
    ("variable", "value", "has"),
    [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False)],
)
def test_no_color(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, has: bool) -> None:
    monkeypatch.setenv(variable, value)
    assert ("\x1b" in colored("x", "red", Terminal())) == has


def test_progress_is_drawn_on_a_terminal_and_removed() -> None:
    stream = Terminal()
    progress = Progress(4, stream)
    progress.show(0, "first")
    progress.show(1, "too soon after the last one to be drawn")
    progress.show(4)
    progress.clear()
    shown = stream.getvalue().split("\r")
    assert shown[1:] == [
        "[" + 30 * "." + "] 0/4, first\x1b[K",
        "[" + 30 * "#" + "] 4/4\x1b[K",
        "\x1b[K",
    ]


def test_a_line_is_not_longer_than_the_terminal() -> None:
    stream = Terminal()
    Progress(2, stream).show(0, 100 * "x")
    assert len(stream.getvalue()) == len("\r") + 79 + len("\x1b[K")
