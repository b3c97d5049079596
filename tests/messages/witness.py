"""One rank of a scene: makes calls and notes the message of each."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import collops
from patience import patience
from tests.unit.communicator.waiting_call import until_asleep

PATIENCE_S = patience(60.0)  # of waits that are to end by themselves
LATE_S = 0.1  # of waits that are to end by time-out


class Gate:
    """Opened by one rank, passed by others. A pipe: a rank that is killed holds no lock of it."""

    def __init__(self) -> None:
        self._ends = os.pipe()

    def open(self, passers: int = 1) -> None:
        """Lets that many pass, now or later."""
        os.write(self._ends[1], b"." * passers)

    def wait(self) -> None:
        """Returns once it is open."""
        os.read(self._ends[0], 1)

    def close(self) -> None:
        """Forgets it in this process."""
        for end in self._ends:
            os.close(end)


class Witness:
    """The rank that plays a scene.

    With `windows`, place() puts arrays into memory that peers read in place, and they are so large
    that no call copies them into its signal.
    """

    def __init__(self, rank: int, size: int, gates: list[Gate], delay_s: float, log: Path) -> None:
        self.rank = rank
        self.size = size
        self.gates = gates
        self.windows = False
        self._delay_s = delay_s
        self._log = log
        self.write(pid=os.getpid())

    @property
    def last(self) -> bool:
        """Whether this is the highest rank, which makes the wrong call."""
        return self.rank == self.size - 1

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return 8192 if self.windows else 2

    def join(self, domain: str, timeout_s: float = PATIENCE_S) -> collops.Communicator:
        """The communicator of a domain, with this time-out once all ranks are there."""
        comm = collops.init(comm_domain=domain, timeout_s=PATIENCE_S)
        comm.barrier()
        return collops.init(comm_domain=domain, timeout_s=timeout_s) if timeout_s else comm

    def place(self, comm: collops.Communicator, array: Any) -> Any:
        """The array, in a window if the scene is about them."""
        if not self.windows or array.dtype.kind not in "fiu":
            return array
        window = comm.empty(array.shape, array.dtype)
        window[...] = array
        return window

    def rows(self, comm: collops.Communicator, rows: int, dtype: Any = np.float32) -> Any:
        """[rows, columns] with other numbers on every rank."""
        x = np.arange(rows * self.columns).reshape(rows, self.columns) % 100 + self.rank
        return self.place(comm, x.astype(dtype))

    def hears(self, case: str, call: Callable[[], Any]) -> None:
        """Makes the call and writes down its error, or that there was none."""
        time.sleep(self._delay_s)
        try:
            call()
        except collops.Error as error:
            self.write(case=case, text=f"{error.code} {error.message}")
        except KeyboardInterrupt:
            self.write(case=case, text="KeyboardInterrupt")
        else:
            self.write(case=case, text="0")

    def once_asleep(self, action: Callable[[], object]) -> threading.Thread:
        """Runs `action` in a thread as soon as this one waits in a call."""

        def run() -> None:
            until_asleep(looks=3)
            action()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write(self, **entry: Any) -> None:
        """Adds a line for the test; it is there also if this process is killed next."""
        with self._log.open("a") as log:
            log.write(json.dumps(entry) + "\n")
