"""Operator, the class of the entries of `table`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..data.bounds import Bound
from ..data.dtypes import Array
from ..data.reduction import ATB_REDUCE_OPS
from .case import Case
from .output_layout import OutputLayout

# OpParam of a case file: the fields of the operator's struct by their JSON keys.
Params = Mapping[str, Any]
# The input tensors of every rank, in the operator's order, and the outputs of every rank.
Inputs = Sequence[Sequence[Array]]
Outputs = list[list[Array]]
# The contents of the inputs after x, by the names of Input.holds.
Numbers = Mapping[str, Sequence[int]]

# The tolerance of ATB's test tool: none, a multiple of a reference's error, or a part of the value.
MOVES, SCATTERS, COMPUTES = "moves", "scatters", "computes"


@dataclass(frozen=True)
class Input:
    """An input after x.

    `dtype` is its dtype, "" where it is x's. `holds` says what is in it: "own count", "counts" and
    "displacements" (of an all-to-all those of what a rank sends, beside "counts received" and
    "displacements received"), "data" as x has it, "scale", floats even where the dtype is int64,
    "tokens" of experts, or nothing but a "length" that is read.

    Example:
        >>> Input("residual", optional=True).holds
        'data'
    """

    name: str
    dtype: str = ""
    holds: str = "data"
    optional: bool = False


@dataclass(frozen=True)
class Operator:
    """One operator.

    - `name` is golden's, `operation` that of case files;
    - `cases` are golden's own for a number of ranks, with seed 0; `params` is their OpParam beside
      rankSize;
    - `outputs`, `layout` and `bounds` take OpParam and all inputs, whether they come from a case
      or from a row of a case file: what every rank must get, where each rank's elements lie in it,
      and how far its first output may be off (None: not at all);
    - `inputs` are those behind x, `more_inputs` those of an OpParam that has others. `numbers` says
      what they hold in a case, `split` what they hold where a row says customize, from the elements
      of every rank's x; `tensors` makes all inputs of a case, where these do not say it;
      `even_case` makes a case in which all ranks' x have one shape (see even.Even.case);
    - `in_place`: there is no output, and x changes; `must_receive`: ATB refuses a rank that gets
      nothing; `lists`: the lists of OpParam of which each rank may have one of its own;
    - `role` names the operator that a rank runs, "" where it takes no part, in a call that moves
      data or must fail before it does; `rank_params` is the rank's OpParam, where ranks differ in
      more than their number;
    - `accuracy` is MOVES, SCATTERS or COMPUTES; `reductions` are ATB's; `more_dtypes` are those of
      x that collops takes beside ATB's.

    Example:
        >>> from .table import OPERATORS
        >>> OPERATORS["all_gather_v"].operation
        'AllGatherVOperation'
    """

    name: str
    operation: str
    cases: Callable[[int], Iterable[Case]]
    outputs: Callable[[Params, Inputs], Outputs]
    layout: Callable[[Params, Inputs], OutputLayout]
    bounds: Callable[[Params, Inputs], list[Bound] | None] | None = None
    params: Callable[[Case], dict[str, Any]] = lambda case: {}
    inputs: tuple[Input, ...] = ()
    more_inputs: Callable[[Params], tuple[Input, ...]] = lambda params: ()
    numbers: Callable[[Case, int], Numbers] = lambda case, rank: {}
    split: Callable[[Sequence[int], int], Numbers] = lambda sizes, rank: {}
    tensors: Callable[[Case, int], dict[str, Array]] | None = None
    even_case: Callable[..., Case] | None = None
    in_place: bool = False
    must_receive: bool = False
    lists: tuple[str, ...] = ()
    role: Callable[[Params, int, bool], str] | None = None
    rank_params: Callable[[Params, int], dict[str, Any]] | None = None
    accuracy: str = MOVES
    reductions: tuple[str, ...] = ATB_REDUCE_OPS
    more_dtypes: Callable[[Params], Collection[str]] = lambda params: {"float64", "uint8", "bool"}

    def inputs_of(self, params: Params) -> tuple[Input, ...]:
        """Return the inputs behind x of a call."""
        return self.more_inputs(params) or self.inputs

    def input_numbers(self, params: Params) -> range:
        """Return how many inputs a call may have, x included."""
        inputs = self.inputs_of(params)
        return range(1 + sum(not one.optional for one in inputs), 2 + len(inputs))


def rank_size_of(params: Params) -> int:
    """Return OpParam's rankSize; 0 where it has none.

    Example:
        >>> rank_size_of({"rankSize": 2}), rank_size_of({"rankSize": "two"})
        (2, 0)
    """
    size = params.get("rankSize", 0)
    return size if isinstance(size, int) else 0


def is_per_rank(given: Any) -> bool:
    """Return whether a value of OpParam is a list of lists.

    Example:
        >>> is_per_rank([[1], [2]]), is_per_rank([1, 2]), is_per_rank([])
        (True, False, False)
    """
    return isinstance(given, list) and bool(given) and all(isinstance(p, list) for p in given)


class NoListError(ValueError):
    """OpParam lacks a list of a rank.

    Example:
        >>> print(NoListError("sendCounts", 1))
        OpParam has no list sendCounts for rank 1
    """

    def __init__(self, name: str, rank: int) -> None:
        super().__init__(f"OpParam has no list {name} for rank {rank}")


def own_list(params: Params, name: str, rank: int) -> list[int]:
    """Return a rank's own list of OpParam.

    A list of lists has one per rank, which ATB does not have.

    Raises:
        NoListError: (a ValueError) there is no such list, or none for this rank.

    Example:
        >>> params = {"rankSize": 2, "sendCounts": [1, 2], "rdispls": [[0, 1], [3, 0]]}
        >>> own_list(params, "sendCounts", 1), own_list(params, "rdispls", 1)
        ([1, 2], [3, 0])
    """
    given: Any = params.get(name)
    own = given[rank] if is_per_rank(given) and rank < len(given) else given
    if not isinstance(own, list) or is_per_rank(own):
        raise NoListError(name, rank)
    return own


def each(outputs: Iterable[Array]) -> Outputs:
    """Return the outputs of ranks that have one each.

    Example:
        >>> import numpy as np
        >>> [[y.tolist() for y in own] for own in each([np.zeros(1), np.ones(1)])]
        [[[0.0]], [[1.0]]]
    """
    return [[output] for output in outputs]


def xs_of(inputs: Inputs) -> list[Array]:
    """Return x of every rank.

    Example:
        >>> import numpy as np
        >>> [x.tolist() for x in xs_of([[np.zeros(1), np.ones(2)]])]
        [[0.0]]
    """
    return [own[0] for own in inputs]
