"""The operators and their lists of cases, and all that a test needs to run one."""

from __future__ import annotations

from collections.abc import Callable

from .data.reduction import ATB_REDUCE_OPS, REDUCE_OPS
from .operators.all_gather_cases import all_gather_cases
from .operators.all_gather_v_cases import all_gather_v_cases
from .operators.all_reduce_cases import all_reduce_cases
from .operators.all_to_all_cases import all_to_all_cases
from .operators.all_to_all_v_cases import all_to_all_v_cases
from .operators.broadcast_cases import broadcast_cases
from .operators.case import Case, all_outputs, expected, inputs
from .operators.linear_parallel.cases import linear_parallel_cases
from .operators.reduce_scatter_cases import reduce_scatter_cases
from .operators.reduce_scatter_v_cases import reduce_scatter_v_cases
from .operators.send_recv_cases import recv_cases, send_cases

__all__ = [
    "ATB_REDUCE_OPS",
    "OPERATORS",
    "REDUCE_OPS",
    "Case",
    "all_cases",
    "all_gather_cases",
    "all_gather_v_cases",
    "all_outputs",
    "all_reduce_cases",
    "all_to_all_cases",
    "all_to_all_v_cases",
    "broadcast_cases",
    "expected",
    "inputs",
    "linear_parallel_cases",
    "recv_cases",
    "reduce_scatter_cases",
    "reduce_scatter_v_cases",
    "send_cases",
]

# One row per operator: its name and the list of its cases for a seed.
OPERATORS: dict[str, Callable[[int], list[Case]]] = {
    "all_gather_v": lambda seed: all_gather_v_cases(seed=seed),
    "reduce_scatter_v": lambda seed: reduce_scatter_v_cases(seed=seed),
    "linear_parallel": lambda seed: linear_parallel_cases(seed=seed),
    "all_gather": lambda seed: all_gather_cases(seed=seed),
    "reduce_scatter": lambda seed: reduce_scatter_cases(seed=seed),
    "all_reduce": lambda seed: all_reduce_cases(seed=seed),
    "broadcast": lambda seed: broadcast_cases(seed=seed),
    "all_to_all": lambda seed: all_to_all_cases(seed=seed),
    "all_to_all_v": lambda seed: all_to_all_v_cases(seed=seed),
    "all_to_all_v_v2": lambda seed: all_to_all_v_cases(operator="all_to_all_v_v2", seed=seed),
    "send": lambda seed: send_cases(seed=seed),
    "recv": lambda seed: recv_cases(seed=seed),
}


def all_cases(operator: str | None = None, *, text: str = "", seed: int = 0) -> list[Case]:
    """Return the cases of one operator, or of all, whose id contains `text`.

    Args:
        operator: a key of OPERATORS; None for all of them.
        text: part of Case.id; empty keeps every case.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids; none where nothing matches.

    Raises:
        ValueError: `operator` is unknown.

    Example:
        >>> [case.id for case in all_cases("all_gather_v", text="p2.layout-tail")]
        ['all_gather_v.p2.layout-tail']
    """
    if operator is not None and operator not in OPERATORS:
        raise ValueError(f"operator {operator!r} is unknown; use one of {', '.join(OPERATORS)}")
    chosen = [operator] if operator is not None else list(OPERATORS)
    return [case for name in chosen for case in OPERATORS[name](seed) if text in case.id]
