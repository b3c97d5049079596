"""Starts and ends ranks that are programs of their own, or programs of a launcher."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_GRACE_S = 5.0


class Programs:
    """Programs that run ranks, each in a session of its own. Use it with ``with`` to end them.

    Args:
        commands: the words and the environment of each.
        output: the file to which they print.
    """

    def __init__(
        self, commands: Iterable[tuple[Sequence[str], Mapping[str, str]]], output: IO[str]
    ) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for words, env in commands:
                process = subprocess.Popen(
                    words, env=env, stdout=output, stderr=output, start_new_session=True
                )
                self._processes.append(process)
        except BaseException:
            self._end(0.0)
            raise

    def running(self) -> bool:
        """Whether at least one program runs and none has failed."""
        return None in [process.poll() for process in self._processes] and not self.failed

    @property
    def failed(self) -> bool:
        """Whether a program has ended with a status other than 0."""
        return any(process.returncode for process in self._processes)

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(_GRACE_S if kind is None else 0.0)

    def _end(self, patience_s: float) -> None:
        """Waits a while for programs that are ending, then ends them with all their children."""
        for sent in (None, signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + (_GRACE_S if sent else patience_s)
            for process in self._processes:
                if sent is not None and process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, sent)
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(deadline - time.monotonic(), 0.0))
