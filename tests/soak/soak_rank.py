"""A process of a soak: one rank of several domains, or all ranks of a domain as threads."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

import collops
from collops.launch.processes import post
from tests.soak.soak_messages import furnish, kinds
from tests.soak.soak_resources import Resources
from tests.soak.soak_turn import Settings, Turn

BATCH = 8
REOPENED = 0.01  # of the calls of a domain that may be opened anew
M_MMAP_THRESHOLD, PR_SET_PDEATHSIG = -3, 1


class Plan(NamedTuple):
    """What all processes of a soak know: the draw, the job, and when its phases end."""

    settings: Settings
    job: str
    phase_ends_s: tuple[float, ...]  # seconds after a process has met all others
    timeout_s: float
    first: int = 0  # number of the first call
    most_calls: int = 0  # per domain; 0: as many as the time allows


class Place(NamedTuple):
    """A rank of a domain."""

    domain: str
    rank: int
    ranks: int
    threads: bool = False
    reopens: bool = False  # whether its communicator is closed and opened anew now and then


class Drawn(NamedTuple):
    """What a rank has done: per kind, calls, bytes of its tensors and its delays."""

    calls: Counter[str]
    moved: Counter[str]
    delays: int


class Lane:
    """One rank of one domain, with its communicator; used by one thread at a time."""

    def __init__(self, plan: Plan, place: Place, source: Any, number: Any) -> None:
        self.plan, self.place, self.source = plan, place, source
        self.number = number  # of the call that it makes, where the parent sees it
        self.doing = "first contact"
        self.calls: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.delays = 0
        self.next = plan.first
        self.table, self.weights = kinds()
        self.comm = self.open()

    def open(self) -> collops.Communicator:
        mode = collops.COMM_MULTI_THREAD if self.place.threads else collops.COMM_MULTI_PROCESS
        comm = collops.init(
            self.place.rank,
            self.place.ranks,
            backend="shm",
            comm_domain=self.place.domain,
            timeout_s=self.plan.timeout_s,
            comm_mode=mode,
            job_id=self.plan.job,
        )
        place = f"{self.place.domain}/first"
        furnish(Turn(comm, self.source, self.plan.settings._replace(delays=0.0), place))
        return comm

    def reopen(self) -> None:
        self.comm.barrier()
        self.comm.close()
        self.comm = self.open()

    def run_phase(self, end: float) -> None:
        """Calls until this domain's ranks agree that the phase is over."""
        last = self.plan.first + self.plan.most_calls if self.plan.most_calls else 0
        over = False
        while not over:
            for _ in range(BATCH):
                self.call(self.next)
                self.next += 1
            over = self.is_over(end, last)
        self.settle()

    def is_over(self, end: float, last: int) -> bool:
        self.doing = "agreeing whether the phase is over"
        late = time.monotonic() > end or (last and self.next >= last)
        return bool(self.comm.all_reduce(np.array([late], np.uint8), "max")[0])

    def call(self, number: int) -> None:
        settings = self.plan.settings
        turn = Turn(self.comm, self.source, settings, f"{self.place.domain}/{number}")
        reopens = turn.shared.random() < REOPENED
        kind = turn.shared.choices(list(self.weights), list(self.weights.values()))[0]
        kind = "close, init" if reopens and self.place.reopens else kind
        self.doing, self.number.value = kind, number
        if kind == "close, init":
            self.reopen()
        else:
            self.table[kind](turn)
        self.calls[kind] += 1
        self.moved[kind] += turn.moved_bytes
        self.delays += turn.slept

    def settle(self) -> None:
        """Brings the group to a state that does not depend on the last calls.

        A window that is gone is unmapped by the peers once a later window says so.
        """
        gc.collect()
        self.doing = "settling"
        group = self.comm.split(0)
        assert group is not None
        with group:
            group.barrier()
        for _ in range(2):
            self.comm.all_gatherv(self.comm.empty(100_000, np.uint8))
        self.comm.barrier()

    def who(self) -> str:
        return f"domain {self.place.domain}, rank {self.place.rank}"


def in_threads(lanes: list[Any], work: Callable[[Any], Any]) -> list[str]:
    """Calls `work` on each in a thread of its own; the errors, as soon as there is one."""
    errors: list[str] = []
    over = threading.Semaphore(0)

    def run(lane: Any) -> None:
        try:
            work(lane)
        except BaseException:
            errors.append(f"{lane.who()}, call {lane.number.value} ({lane.doing}):\n")
            errors[-1] += traceback.format_exc()
        over.release()

    threads = [threading.Thread(target=run, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    for _ in threads:
        over.acquire()
        if errors:
            return errors
    for thread in threads:
        thread.join()
    return errors


class Opening:
    """A lane that is not open yet."""

    def __init__(self, lanes: list[Lane], plan: Plan, place: Place, source: Any, number: Any):
        self.arguments, self.lanes, self.place = (plan, place, source, number), lanes, place
        self.number, self.doing = number, "first contact"

    def open(self) -> None:
        self.lanes.append(Lane(*self.arguments))

    def who(self) -> str:
        return f"domain {self.place.domain}, rank {self.place.rank}"


def run_process(
    end: Connection, plan: Plan, places: list[Place], source: Any, numbers: list[Any]
) -> None:
    """The main function of a process: (Drawn, its Resources after each phase), or errors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    library = ctypes.CDLL(None)
    library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    library.mallopt(M_MMAP_THRESHOLD, 128 << 10)  # large blocks return to the system when freed
    source[:: os.sysconf("SC_PAGE_SIZE")].max()  # its pages count from the beginning
    lanes: list[Lane] = []
    places_and_numbers = zip(places, numbers, strict=True)
    opening = [Opening(lanes, plan, place, source, number) for place, number in places_and_numbers]
    errors = in_threads(opening, Opening.open)
    began = time.monotonic()
    measured = []
    for end_s in plan.phase_ends_s:
        errors = errors or in_threads(lanes, partial(Lane.run_phase, end=began + end_s))
        gc.collect()
        library.malloc_trim(0)
        measured.append(Resources.of_this_process())
    if errors:
        post(end.fileno(), ("\n".join(errors), None, None))
        os._exit(1)
    calls: Counter[str] = sum((lane.calls for lane in lanes), Counter())
    moved: Counter[str] = sum((lane.moved for lane in lanes), Counter())
    drawn = Drawn(calls, moved, sum(lane.delays for lane in lanes))
    in_threads(lanes, lambda lane: lane.comm.close())
    post(end.fileno(), ("", drawn, measured))
