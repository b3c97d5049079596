"""The table of all operators."""

from __future__ import annotations

from ..data.words import unknown
from .all_gather import ALL_GATHER
from .all_gather_v import ALL_GATHER_V
from .all_reduce import ALL_REDUCE
from .all_to_all import ALL_TO_ALL
from .all_to_all_v import ALL_TO_ALL_V, ALL_TO_ALL_V_V2
from .broadcast import BROADCAST
from .linear_parallel.entry import LINEAR_PARALLEL
from .operator import Operator
from .reduce_scatter import REDUCE_SCATTER
from .reduce_scatter_v import REDUCE_SCATTER_V
from .send_recv import RECV, SEND

_ALL = (
    ALL_GATHER_V,
    REDUCE_SCATTER_V,
    LINEAR_PARALLEL,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_REDUCE,
    BROADCAST,
    ALL_TO_ALL,
    ALL_TO_ALL_V,
    ALL_TO_ALL_V_V2,
    SEND,
    RECV,
)
# By golden's name, and by the name in case files.
OPERATORS: dict[str, Operator] = {operator.name: operator for operator in _ALL}
OPERATIONS: dict[str, Operator] = {operator.operation: operator for operator in _ALL}


def operator_of(name: str) -> Operator:
    """Return an operator by golden's name.

    Raises:
        ValueError: there is no operator of this name.

    Example:
        >>> operator_of("broadcast").in_place
        True
    """
    if name not in OPERATORS:
        raise unknown("operator", name, OPERATORS)
    return OPERATORS[name]
