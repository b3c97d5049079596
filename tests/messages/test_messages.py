"""Every message that ranks get when a call fails is in expected.txt, word for word.

COLLOPS_UPDATE_MESSAGES=1 plays the scenes that are selected several times and writes the file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.messages import (
    disagreements,
    endings,
    expected,
    first_contact,
    linear_disagreements,
    losses,
)
from tests.messages.scene import Scene
from tests.messages.update import Played, check, play_all, title, update

PATH = Path(__file__).with_name("expected.txt")
SCENES: list[Scene] = [
    *disagreements.SCENES,
    *linear_disagreements.SCENES,
    *losses.SCENES,
    *endings.SCENES,
    *first_contact.SCENES,
]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Played:
    """The scenes that are selected, played before the first test."""
    selected = [
        item.callspec.params.get("scene")
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    played = play_all([scene for scene in selected if scene is not None])
    update(PATH, "tests/messages", SCENES, played)
    return played


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_messages(played: Played, scene: Scene) -> None:
    check(PATH, scene, played[scene.name])


def test_the_file_has_no_other_scene() -> None:
    assert list(expected.read(PATH)) == [title(scene) for scene in SCENES]
