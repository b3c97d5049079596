"""A test case: everything that states one call of one operator on all ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .all_gather_v import all_gather_v
from .data import fill
from .dtypes import DTYPES, Array
from .even_collectives import EVEN_OPERATORS, even_outputs
from .linear_parallel import linear_parallel
from .linear_parallel_data import linear_inputs
from .linear_parallel_groups import LinearParallel
from .reduce_scatter_v import reduce_scatter_v

_OPERATORS = ("all_gather_v", "reduce_scatter_v", "linear_parallel", *EVEN_OPERATORS)


@dataclass(frozen=True)
class Case:
    """One call of an operator on all its ranks; equal cases give equal tensors.

    `counts` and `displs` are in elements, one per rank: recvCounts and rdispls of all_gather_v,
    sendCounts and sdispls of reduce_scatter_v. `rows` are the rows of each rank's output, the
    length of its y. `op` is "" for all_gather_v. `kind` and `seed` choose x (see data.fill).
    linear_parallel has its parameters in `linear` and n in `columns`, and no counts. The operators
    of even_collectives have the counts of the V operator that does the same; `root` is broadcast's.

    Example:
        >>> case = Case("all_gather_v", "tiny", 2, "int8", (2, 1), (0, 2), ((2,), (1,)), (3, 3))
        >>> case.id, inputs(case)[1]["x"].tolist(), expected(case)[0].tolist()
        ('all_gather_v.p2.tiny', [32], [-125, -124, 32])
    """

    operator: str
    name: str
    rank_size: int
    dtype: str
    counts: tuple[int, ...]
    displs: tuple[int, ...]
    x_shapes: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]
    op: str = ""
    kind: str = "index"
    seed: int = 0
    linear: LinearParallel | None = None
    columns: int = 0
    root: int = 0

    @property
    def id(self) -> str:
        """Name that is unique among all cases and fit for a file."""
        return f"{self.operator}.p{self.rank_size}.{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values; `linear` and `columns` where they are set."""
        fields = asdict(self)
        if self.linear is None:
            del fields["linear"], fields["columns"]
        if self.root == 0:
            del fields["root"]
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Case:
        """Return the case that to_dict described.

        Raises:
            TypeError: a field is missing or unknown, or cannot have such a value.
        """
        _check_fields(fields)
        values = {key: _frozen(value) for key, value in fields.items()}
        if values.get("linear") is not None:
            linear = {key: _frozen(value) for key, value in values["linear"].items()}
            values["linear"] = LinearParallel(**linear)
        return cls(**values)


def inputs(case: Case) -> list[dict[str, Array]]:
    """Return the input tensors of every rank, in the operator's order of inputs.

    all_gather_v: x, sendCount [1], recvCounts [P], rdispls [P], y [rows].
    reduce_scatter_v: x, sendCounts [P], sdispls [P], recvCount [1], y [rows].
    Counts and displacements are int64; y is float16 zeros, of which only the length matters;
    a bfloat16 x is np.uint16 bit patterns.
    linear_parallel: x, weight, and residual where the case has one. The others: x alone.

    Raises:
        ValueError: the case's operator is unknown.

    Example:
        >>> case = Case("all_gather_v", "tiny", 2, "int8", (2, 1), (0, 2), ((2,), (1,)), (3, 3))
        >>> {name: tensor.tolist() for name, tensor in inputs(case)[0].items() if name != "y"}
        {'x': [-125, -124], 'sendCount': [2], 'recvCounts': [2, 1], 'rdispls': [0, 2]}
    """
    return [_rank_inputs(case, rank) for rank in range(case.rank_size)]


def expected(case: Case) -> list[Array]:
    """Return the first output that every rank must get; of broadcast, what its x must become.

    Raises:
        ValueError: the case's operator is unknown, or its numbers do not fit together.

    Example:
        >>> case = Case("reduce_scatter_v", "tiny", 2, "int8", (2, 1), (0, 2), ((3, 1),) * 2,
        ...             (2, 1), "max")
        >>> [output.tolist() for output in expected(case)]
        [[[32], [33]], [[34]]]
    """
    return [outputs[0] for outputs in all_outputs(case)]


def all_outputs(case: Case) -> list[list[Array]]:
    """Return all outputs that every rank must get; linear_parallel may have two.

    Raises:
        ValueError: the case's operator is unknown, or its numbers do not fit together.

    Example:
        >>> call = LinearParallel(2, 2, keep_intermediate=True)
        >>> case = Case("linear_parallel", "tiny", 2, "float32", (), (), ((1, 3),) * 2, (2, 2),
        ...             kind="exact", linear=call, columns=4)
        >>> [output.shape for output in all_outputs(case)[1]]
        [(2, 4), (2, 3)]
    """
    tensors = inputs(case)
    xs = [own["x"] for own in tensors]
    if case.operator == "all_gather_v":
        return [
            [all_gather_v(xs, case.counts, case.displs, rows, rank=rank)]
            for rank, rows in enumerate(case.rows)
        ]
    if case.operator in EVEN_OPERATORS:
        outputs = even_outputs(case.operator, xs, op=case.op, dtype=case.dtype, root=case.root)
        return [[output] for output in outputs]
    if case.linear is not None:
        weights = [own["weight"] for own in tensors]
        residuals = [own["residual"] for own in tensors if "residual" in own]
        return linear_parallel(case.linear, xs, weights, residuals, case.dtype)
    numbers = (case.counts, case.displs, case.rows, case.op, case.dtype)
    return [[output] for output in reduce_scatter_v(xs, *numbers)]


def rows_of(count: int, row: Sequence[int]) -> int:
    """Return how many rows of shape `row` hold `count` elements; the last may be cut.

    Example:
        >>> rows_of(9, (2, 2)), rows_of(0, (4,)), rows_of(5, ())
        (3, 0, 5)
    """
    return -(-count // math.prod(row))


def _rank_inputs(case: Case, rank: int) -> dict[str, Array]:
    if case.linear is not None:
        how = (case.dtype, case.kind, case.seed)
        return linear_inputs(case.linear, rank, case.x_shapes[rank], case.columns, *how)
    x = fill(case.x_shapes[rank], case.dtype, rank, case.seed, case.kind)
    if case.operator in EVEN_OPERATORS:
        return {"x": x}
    own = np.array([case.counts[rank]], np.int64)
    counts, displs = np.array(case.counts, np.int64), np.array(case.displs, np.int64)
    y = np.zeros(case.rows[rank], np.float16)
    if case.operator == "all_gather_v":
        return {"x": x, "sendCount": own, "recvCounts": counts, "rdispls": displs, "y": y}
    if case.operator == "reduce_scatter_v":
        return {"x": x, "sendCounts": counts, "sdispls": displs, "recvCount": own, "y": y}
    raise ValueError(f"operator {case.operator!r} has no reference here")


def _check_fields(fields: Mapping[str, Any]) -> None:
    """Raise TypeError for the first field that no case can have, such as a rank_size of null."""
    known = {"operator": _OPERATORS, "dtype": DTYPES}
    for name, words in known.items():
        if name in fields and fields[name] not in words:
            raise TypeError(f"{name} is none of {', '.join(words)}, got {fields[name]!r}")
    for name in ("rank_size", "seed", "columns", "root"):
        least = 1 if name == "rank_size" else 0
        if name in fields and not _is_count(fields[name], least):
            raise TypeError(f"{name} is no whole number from {least}, got {fields[name]!r}")
    for name in ("counts", "displs", "rows", "x_shapes"):
        if name in fields and not _are_counts(fields[name], nested=name == "x_shapes"):
            raise TypeError(f"{name} is no list of whole numbers, got {fields[name]!r}")


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are_counts(value: Any, *, nested: bool) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    return all(_are_counts(part, nested=False) if nested else _is_count(part) for part in value)


def _frozen(value: Any) -> Any:
    """Return lists as tuples, which JSON does not have."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
