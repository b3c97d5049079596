"""The other names of torch_atb, besides the structs and Operation: Prof and set_buffer_size."""

from __future__ import annotations

import operator
import warnings
from typing import Any

from collops.core import core
from collops.errors import ErrorCode, raise_status

_noted: list[str] = []


class Prof:
    """The run times of this thread's ``Operation.forward()`` calls.

    Each is the time from the beginning of a successful call to its return. On a device the work
    itself may end later.

    Source of the semantics: ``torch_atb.Prof``.

    Example:
        >>> import collops, numpy as np
        >>> from collops.testing import run_ranks
        >>> def gather(rank):
        ...     param = collops.AllGatherParam(rank=rank, rank_size=2, backend="shm")
        ...     op = collops.Operation(param)
        ...     for _ in range(3):
        ...         op.forward([np.zeros(4, np.float32)])
        ...     return len(collops.Prof.get_prof_stats().get_run_time_stats(op.name))
        >>> run_ranks(gather, 2)
        [3, 3]
    """

    @staticmethod
    def get_prof_stats() -> Prof:
        """The run times of the calling thread."""
        return Prof()

    def get_run_time_stats(self, op_name: str) -> list[int]:
        """The times of an operator's last 1000 calls in this thread.

        Args:
            op_name: the operator's name, as ``Operation.name``, or ATB's ``"AllGatherOperation"``.

        Returns:
            Whole microseconds, the latest call last; empty if there was no call.
        """
        return list(core().run_times(str(op_name).removesuffix("Operation")))


def set_buffer_size(bytes: Any) -> None:
    """Accepts the size of torch_atb's workspace and ignores it; the first call warns.

    torch_atb keeps one workspace per thread, of 50 MB unless this function changes it. In collops
    ``forward()`` allocates what a call needs.

    Args:
        bytes: a whole number, at least 0; it has no effect.

    Raises:
        ArgumentError: `bytes` is not such a number.

    Example:
        >>> import collops, warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     collops.set_buffer_size(300_000_000)
    """
    try:
        is_size = operator.index(bytes) >= 0
    except TypeError:
        is_size = False
    if not is_size:
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"set_buffer_size: bytes must be a whole number >= 0, got {bytes!r}",
        )
    if not _noted:
        _noted.append("set_buffer_size")
        warnings.warn(
            "set_buffer_size has no effect: collops keeps no workspace between calls, "
            "forward() allocates what each needs. The buffers of HCCL, on an NPU, are set by the "
            "environment variable HCCL_BUFFSIZE",
            stacklevel=2,
        )
