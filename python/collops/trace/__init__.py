"""Records what every rank's calls do and when, for Chrome's and Perfetto's trace viewers.

Each rank writes a file of its own; ``collops trace merge`` joins them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from collops.core import core

__all__ = ["record", "start", "stop"]


def start(path: str | os.PathLike[str]) -> None:
    """Records the calls of this process's communicators from now on.

    Rank 3 writes ``trace.rank3.json`` where `path` is ``trace.json``, and replaces what is there.
    ``COLLOPS_TRACE=trace.json`` does the same from the first communicator on.

    Raises:
        ArgumentError: `path` does not end in ``.json``, its folder does not exist, or this process
            records already.
    """
    core().start_recording(os.fspath(path))


def stop() -> None:
    """Ends the recording and closes its files; does nothing if this process does not record.

    A process that ends does so by itself.
    """
    core().stop_recording()


@contextmanager
def record(path: str | os.PathLike[str]) -> Iterator[None]:
    """Records the calls inside a ``with`` block: start() before it, stop() after it.

    Example:
        >>> import tempfile, numpy as np, collops
        >>> from pathlib import Path
        >>> from collops import trace
        >>> comm = collops.init(0, 1, comm_domain="recorded")
        >>> folder = tempfile.mkdtemp()
        >>> with trace.record(f"{folder}/trace.json"):
        ...     _ = comm.all_gatherv(np.ones(3, np.float32))
        >>> [file.name for file in Path(folder).iterdir()]
        ['trace.rank0.json']
        >>> comm.close()
    """
    start(path)
    try:
        yield
    finally:
        stop()
