"""Says when times are those of a busy machine: other programs had the cores as well."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

# A row is disturbed if 95 % of its calls need more than its fastest call this many times.
_MOST_SPREAD = 5.0


def shared_cores(load: float, spreads: Sequence[float]) -> str:
    """A warning if the cores were shared with other programs; empty if they were not.

    Args:
        load: the load average before the ranks were started.
        spreads: the 95th percentile of each row's times over its fastest one, of rows whose ranks
            have a core each.

    Example:
        >>> shared_cores(0.0, [1.5, 2.0, 9.0])
        ''
    """
    cores = os.cpu_count() or 1
    if load > cores:
        return (
            f"the cores were shared with other programs (load {load:.1f} on {cores} cores): "
            "these times are mostly the scheduler's"
        )
    if spreads and statistics.median_low(spreads) > _MOST_SPREAD:
        return (
            f"in most rows the slowest calls took more than {_MOST_SPREAD:g} times as long as the "
            f"fastest (load {load:.1f} on {cores} cores): other programs disturbed these times"
        )
    return ""


def load_average() -> float:
    """The load average of the last minute; 0 where the system does not tell it."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0
