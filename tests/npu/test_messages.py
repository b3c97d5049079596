"""Messages of failed calls on hccl are those in expected_messages.txt, word for word.

COLLOPS_UPDATE_MESSAGES=1 plays the scenes that are selected several times and writes the file.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from tests.messages import expected
from tests.messages.scene import Scene, play, play_often
from tests.messages.update import MODE, Played, check, title, update
from tests.messages.witness import LATE_S, Witness

PATH = Path(__file__).with_name("expected_messages.txt")
CHECK = {"COLLOPS_CHECK": "1"}
# What a rank calls: its fields of the struct, counts, displacements and dtype.
Call = Callable[[Any, Witness, str], Any]


def gather(
    counts: list[int] | None = None,
    displs: list[int] | None = None,
    dtype: Any = "f4",
    root: int = 0,
) -> Call:
    """AllGatherV, by default of 2, 4, 6 elements."""

    def call(npu: Any, w: Witness, domain: str) -> Any:
        param = collops.AllGatherVParam(
            rank=w.rank, rank_size=w.size, rank_root=root, comm_domain=domain
        )
        every = np.array((counts or [2, 4, 6])[: w.size])
        x = npu.tensor(np.arange(int(every[w.rank])).astype(dtype))
        ins = [x, every[w.rank : w.rank + 1], every, np.array((displs or [0, 2, 6])[: w.size])]
        return collops.Operation(param).forward([*ins, np.empty(20, np.float16)])

    return call


def scatter(kind: str = "sum", rows: int = 6) -> Call:
    """ReduceScatterV of x [rows, 2]."""

    def call(npu: Any, w: Witness, domain: str) -> Any:
        param = collops.ReduceScatterVParam(
            rank=w.rank, rank_size=w.size, reduce_type=kind, comm_domain=domain
        )
        every, displs = np.array([2, 4, 6][: w.size]), np.array([0, 2, 6][: w.size])
        x = npu.tensor(np.ones((rows, 2), np.float32))
        ins = [x, every, displs, every[w.rank : w.rank + 1], np.empty(6, np.float16)]
        return collops.Operation(param).forward(ins)

    return call


# What the rank of the highest number calls, and what the others call.
CASES: dict[str, tuple[Call, Call]] = {
    "operator": (scatter(), gather()),
    "dtype": (gather(dtype="i4"), gather()),
    "reduceType": (scatter("max"), scatter()),
    "rankRoot": (gather(root=1), gather()),
    "x's shape": (scatter(rows=7), scatter()),
    "counts[i]": (gather([2, 3, 6]), gather()),
    "displs[i]": (gather(None, [1, 3, 7]), gather()),
    "refusal": (gather([2, -4, -6]), gather()),
}


def disagree(npu: Any) -> Callable[[Witness], None]:
    """All cases, one domain each, and what a good call says after them."""

    def play(w: Witness) -> None:
        npu.choose(w.rank)
        for case, (odd, others) in CASES.items():
            gather()(npu, w, case)
            call = odd if w.last else others
            w.hears(case, lambda c=case, call=call: call(npu, w, c))
            if case == "refusal":
                w.hears(f"{case}, then a good call", lambda c=case: gather()(npu, w, c))
        w.join("the end")  # nobody leaves while another one is in a call

    return play


def lose(npu: Any, leave: Callable[[], None]) -> Callable[[Witness], None]:
    """The last rank goes while the others wait in the comparison."""

    def play(w: Witness) -> None:
        npu.choose(w.rank)
        gather()(npu, w, "lost")
        if w.last:
            for _ in range(w.size - 1):
                w.gates[0].wait()
            return leave()
        waits = w.once_asleep(w.gates[0].open)
        w.hears("AllGatherV", lambda: gather()(npu, w, "lost"))
        return waits.join()

    return play


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave_with_an_error() -> None:
    raise LookupError("no such token")


def stay_away(npu: Any) -> Callable[[Witness], None]:
    """The last rank does not come; rank 0's patience ends when the others wait."""

    def play(w: Witness) -> None:
        npu.choose(w.rank)
        gather()(npu, w, "late")
        if w.rank == 0:
            comm = collops.init(backend="hccl", comm_domain="late", timeout_s=LATE_S)
            for _ in range(w.size - 2):
                w.gates[0].wait()
            w.hears("AllGatherV", lambda: gather()(npu, w, "late"))
            w.gates[1].open()
            del comm
        elif w.last:
            w.gates[1].wait()
        else:
            waits = w.once_asleep(w.gates[0].open)
            w.hears("AllGatherV", lambda: gather()(npu, w, "late"))
            waits.join()

    return play


def close_and_abort(npu: Any) -> Callable[[Witness], None]:
    """Calls on what was closed, what another rank has aborted, and what a parent has."""

    def play(w: Witness) -> None:
        npu.choose(w.rank)
        comm = collops.init(backend="hccl", comm_domain="closed")
        comm.close()
        w.hears("closed: barrier", comm.barrier)
        comm = collops.init(backend="hccl", comm_domain="aborted")
        comm.barrier()
        if w.last:
            for _ in range(w.size - 1):
                w.gates[0].wait()
            comm.abort("enough")
        else:
            waits = w.once_asleep(w.gates[0].open)
            w.hears("aborted: barrier", comm.barrier)
            waits.join()
        w.hears("aborted, then barrier", comm.barrier)

    return play


PLAYS: dict[str, tuple[Callable[[Any], Callable[[Witness], None]], dict[str, Any]]] = {
    "that disagree": (disagree, {"racing": True}),
    "one is killed": (lambda npu: lose(npu, be_killed), {"racing": True, "dying": True}),
    "one leaves with an error": (
        lambda npu: lose(npu, leave_with_an_error),
        {"racing": True, "dying": True},
    ),
    "one does not come": (stay_away, {}),
    "closed and aborted": (close_and_abort, {}),
}
SCENES = [
    Scene(f"3 ranks on hccl, {name}", 3, make, env=CHECK, **fields)
    for name, (make, fields) in PLAYS.items()
]


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    """The messages of the scenes of this file, which are written at the end on request."""
    heard: Played = {}
    yield heard
    update(PATH, "tests/npu/test_messages.py", SCENES, heard)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_messages(npu: Any, played: Played, scene: Scene) -> None:
    own = Scene(scene.name, scene.ranks, scene.play(npu), scene.env, scene.dying, scene.racing)
    played[scene.name] = play_often(own) if MODE else play(own)
    check(PATH, scene, played[scene.name])


def test_the_file_has_no_other_scene() -> None:
    assert list(expected.read(PATH)) == [title(scene) for scene in SCENES]
