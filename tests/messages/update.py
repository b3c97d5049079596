"""Plays scenes and holds them against the file of expected messages, or writes the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.messages import expected
from tests.messages.scene import Heard, Scene, joined, play, play_often

MODE = os.environ.get("COLLOPS_UPDATE_MESSAGES", "")
AT_ONCE = 3  # they mostly wait

Played = dict[str, Heard | Exception]


def play_all(scenes: Sequence[Scene]) -> Played:
    """The result of each scene, or its exception."""

    def one(scene: Scene) -> Heard | Exception:
        try:
            return play_often(scene) if MODE else play(scene)
        except Exception as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = [scene.name for scene in scenes]
        return dict(zip(names, pool.map(one, scenes), strict=True))


def check(path: Path, scene: Scene, heard: Heard | Exception) -> None:
    """Compares the messages of a scene with the file, unless the file is to be written."""
    if isinstance(heard, Exception):
        raise heard
    listed = expected.read(path).get(title(scene), {})
    found = [] if MODE else expected.differences(heard, listed, scene.racing)
    assert not found, "\n".join(["messages are not as expected.", *found])


def update(path: Path, test: str, scenes: Sequence[Scene], played: Played) -> None:
    """Writes the messages in the order of `scenes`; those of scenes not played stay."""
    if not MODE:
        return
    before = expected.read(path)
    after: dict[str, Heard] = {}
    for scene in scenes:
        known = before.get(title(scene), {})
        heard = played.get(scene.name, known)
        if isinstance(heard, Exception):
            heard = known
        heard = joined(known, heard) if MODE == "add" else heard
        after[title(scene)] = expected.tidied(heard) if scene.racing else heard
    expected.write(path, test, {name: heard for name, heard in after.items() if heard})


def title(scene: Scene) -> str:
    """How the file names a scene."""
    return f"{scene.name} (racing)" if scene.racing else scene.name
