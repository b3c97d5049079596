"""Golden's own cases of all operators, with their inputs, expected outputs and structs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .data.bounds import Bound
from .data.dtypes import Array
from .data.kinds import fill
from .data.reduction import ATB_REDUCE_OPS, REDUCE_OPS
from .operators.case import Case
from .operators.operator import Inputs, is_per_rank
from .operators.output_layout import OutputLayout
from .operators.table import OPERATORS, operator_of

__all__ = [
    "ATB_REDUCE_OPS",
    "OPERATORS",
    "REDUCE_OPS",
    "Case",
    "all_cases",
    "all_outputs",
    "case_bounds",
    "case_layout",
    "expected",
    "inputs",
    "struct_fields",
    "struct_operator",
]


def all_cases(
    operator: str | None = None,
    *,
    text: str = "",
    seed: int = 0,
    rank_sizes: Sequence[int] = (2, 3, 4),
) -> list[Case]:
    """Return the cases of one operator, or of all, whose id contains `text`.

    Args:
        operator: a key of OPERATORS; None for all of them.
        text: part of Case.id; empty keeps every case.
        seed: seed of the cases' data.
        rank_sizes: numbers of ranks, >= 1; of send and recv >= 2.

    Returns:
        Cases with unique ids, the same list on every call; empty if no id matches.

    Raises:
        ValueError: `operator` is unknown.

    Example:
        >>> [case.id for case in all_cases("all_gather_v", text="p2.layout-tail")]
        ['all_gather_v.p2.layout-tail']
    """
    chosen = OPERATORS.values() if operator is None else [operator_of(operator)]
    cases = (case for one in chosen for size in rank_sizes for case in one.cases(size))
    return [replace(case, seed=seed) for case in cases if text in case.id]


def inputs(case: Case) -> list[dict[str, Array]]:
    """Return the input tensors of every rank, in the operator's order of inputs.

    These are x and the inputs in Operator.inputs: counts and displacements are int64; only the
    length of y matters; a bfloat16 x is np.uint16 bit patterns. If the counts are in the struct
    (see struct_fields), x is the only input. In a message the sender's x has the data; of the
    receiver's x only shape and dtype matter.

    Raises:
        ValueError: the case's operator is unknown.

    Example:
        >>> case = Case("all_gather_v", "tiny", 2, "int8", (2, 1), (0, 2), ((2,), (1,)), (3, 3))
        >>> {name: tensor.tolist() for name, tensor in inputs(case)[0].items() if name != "y"}
        {'x': [-125, -124], 'sendCount': [2], 'recvCounts': [2, 1], 'rdispls': [0, 2]}
    """
    return [_rank_inputs(case, rank) for rank in range(case.rank_size)]


def expected(case: Case) -> list[Array]:
    """Return the expected first output of every rank; for broadcast, the expected x.

    For a message: the expected output of the receiver, and the unchanged x of all other ranks.

    Raises:
        ValueError: the case's operator is unknown, or its numbers do not fit together.

    Example:
        >>> case = Case("reduce_scatter_v", "tiny", 2, "int8", (2, 1), (0, 2), ((3, 1),) * 2,
        ...             (2, 1), "max")
        >>> [output.tolist() for output in expected(case)]
        [[[32], [33]], [[34]]]
    """
    return [outputs[0] for outputs in all_outputs(case)]


def all_outputs(case: Case, given: Inputs | None = None) -> list[list[Array]]:
    """Return all expected outputs of every rank; linear_parallel may have two.

    Args:
        case: the case.
        given: its inputs; None: they are made.

    Raises:
        ValueError: the case's operator is unknown, or its numbers do not fit together.

    Example:
        >>> [case] = all_cases("linear_parallel", text="p2.exact-gather_rows-3-5")
        >>> [output.shape for output in all_outputs(case)[1]]
        [(16, 11), (16, 13)]
    """
    return operator_of(case.operator).outputs(_params(case), _listed(case, given))


def case_layout(case: Case, given: Inputs | None = None) -> OutputLayout:
    """Return where each rank's elements lie in a case's outputs.

    Args:
        case: the case.
        given: its inputs; None: they are made.

    Raises:
        ValueError: the case's operator is unknown.

    Example:
        >>> case = Case("all_gather_v", "tiny", 2, "int8", (2, 1), (0, 2), ((2,), (1,)), (3, 3))
        >>> case_layout(case).of(1)[1]
        Block(start=2, count=1, rank=1)
    """
    return operator_of(case.operator).layout(_params(case), _listed(case, given))


def case_bounds(case: Case, given: Inputs | None = None) -> list[Bound] | None:
    """Return the largest errors of each rank's first output; None: it must be equal bit for bit.

    `given` is as for case_layout.

    Example:
        >>> case_bounds(Case("all_gather_v", "tiny", 1, "int8", (1,), (0,), ((1,),), (1,))) is None
        True
    """
    bounds = operator_of(case.operator).bounds
    if bounds is None or case.kind == "exact":
        return None
    return bounds(_params(case), _listed(case, given))


def struct_operator(case: Case, rank: int) -> str:
    """Return the operator that a rank calls in a case; empty if it takes no part.

    That is the operator of the case; in a message the sender calls send and the receiver recv.

    Example:
        >>> case = Case("send", "tiny", 3, "int8", (), (), ((2,),) * 3, (2,) * 3, root=2, peer=0)
        >>> [struct_operator(case, rank) for rank in range(3)]
        ['recv', '', 'send']
    """
    role = operator_of(case.operator).role
    return case.operator if role is None else role(_params(case), rank, True)


def struct_fields(case: Case, rank: int) -> dict[str, Any]:
    """Return the fields of a rank's struct in a case, except rank and rankSize, by JSON keys.

    Empty for a rank that takes no part in a message.

    Example:
        >>> case = Case("send", "tiny", 3, "int8", (), (), ((2,),) * 3, (2,) * 3, root=2, peer=0)
        >>> [struct_fields(case, rank) for rank in range(3)]
        [{'srcRank': 2}, {}, {'destRank': 0}]
    """
    own_params, params = operator_of(case.operator).rank_params, _params(case)
    if not struct_operator(case, rank):
        return {}
    if own_params is not None:
        params = own_params(params, rank)
    return {
        key: value[rank] if is_per_rank(value) else value
        for key, value in params.items()
        if key not in ("rank", "rankSize")
    }


def _params(case: Case) -> dict[str, Any]:
    """Return the OpParam of a case, as in a case file."""
    return {"rankSize": case.rank_size, **operator_of(case.operator).params(case)}


def _listed(case: Case, given: Inputs | None = None) -> Inputs:
    return given if given is not None else [list(own.values()) for own in inputs(case)]


def _rank_inputs(case: Case, rank: int) -> dict[str, Array]:
    operator = operator_of(case.operator)
    if operator.tensors is not None:
        return operator.tensors(case, rank)
    tensors = {"x": fill(case.x_shapes[rank], case.dtype, rank, case.seed, case.kind)}
    numbers = operator.numbers(case, rank)
    for one in operator.inputs:
        is_length = one.holds == "length"
        values = np.zeros(case.rows[rank]) if is_length else np.array(numbers[one.holds])
        tensors[one.name] = values.astype(one.dtype)
    return tensors
