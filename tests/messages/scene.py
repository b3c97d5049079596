"""A scene is a job of some ranks in which calls fail; playing it returns all ranks' messages."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collops.testing import RankErrors, run_ranks
from patience import patience
from tests.messages.witness import Gate, Witness

NUM_GATES = 4
STAGGER_S = 0.04
# What every rank heard in each case, as it may vary: Heard[case][rank] lists the texts.
Heard = dict[str, dict[int, list[str]]]


@dataclass(frozen=True)
class Scene:
    """`play` runs on each rank. Where ranks end without a result, `dying` says that it is meant.

    `racing`: the ranks come to the calls in any order, and what they hear may depend on it.
    """

    name: str
    ranks: int
    play: Callable[[Witness], None]
    env: dict[str, str] = field(default_factory=dict)
    dying: bool = False
    racing: bool = False


@contextlib.contextmanager
def opened_gates() -> Iterator[list[Gate]]:
    """The gates of one play."""
    gates = [Gate() for _ in range(NUM_GATES)]
    try:
        yield gates
    finally:
        for gate in gates:
            gate.close()


def play(scene: Scene, delays: Sequence[float] = ()) -> Heard:
    """Plays a scene once. `delays`: seconds by which each rank comes late to its calls."""
    with tempfile.TemporaryDirectory() as folder, opened_gates() as gates:
        logs = [Path(folder) / f"{rank}" for rank in range(scene.ranks)]

        def work(rank: int) -> None:
            delay_s = delays[rank] if delays else 0.0
            scene.play(Witness(rank, scene.ranks, gates, delay_s, logs[rank]))

        with contextlib.suppress(*([RankErrors] if scene.dying else [])):
            run_ranks(work, scene.ranks, env=scene.env, timeout=patience(60))
        return collect(logs)


def play_often(scene: Scene) -> Heard:
    """All that a scene may give; where ranks race, they also come one after the other."""
    orders = itertools.permutations([i * STAGGER_S for i in range(min(scene.ranks, 3))])
    staggered = [(*order, 0.0) for order in orders] if scene.racing else [(), ()]
    merged: Heard = {}
    for delays in [(), *staggered, ()]:
        merged = joined(merged, play(scene, delays))
    return merged


def joined(one: Heard, other: Heard) -> Heard:
    """What any of the two has."""
    result: Heard = {}
    for heard in (one, other):
        for case, ranks in heard.items():
            for rank, texts in ranks.items():
                known = result.setdefault(case, {}).setdefault(rank, [])
                known += [text for text in texts if text not in known]
    return result


def collect(logs: Sequence[Path]) -> Heard:
    """What the ranks have written, with a name in the place of what varies."""
    entries = [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]
    pids = {entry["pid"]: rank for rank, log in enumerate(entries) for entry in log[:1]}
    heard: Heard = {}
    for rank, log in enumerate(entries):
        for entry in log[1:]:
            texts = heard.setdefault(entry["case"], {}).setdefault(rank, [])
            texts.append(without_variables(entry["text"], pids))
    return heard


def without_variables(text: str, pids: dict[int, int]) -> str:
    """The text with process ids, job, split and what a process does just now replaced by names."""

    def pid(match: re.Match[str]) -> str:
        rank = pids.get(int(match[2]))
        return f"{match[1]} <{'other' if rank is None else rank}>"

    text = re.sub(r"\b(pid|process) (\d+)", pid, text)
    text = re.sub(r"run_ranks-[0-9a-f]{32}", "<job>", text)
    text = re.sub(r"/split \d+\.", "/split <number>.", text)
    text = re.sub(r"\b0x[0-9a-f]+", "<address>", text)
    return re.sub(r"\), (sleeping|running), ", "), <sleeping or running>, ", text)
