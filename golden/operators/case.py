"""A test case: everything that states one call of one operator on all ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..data.dtypes import Array
from ..data.exchange import Exchange, square
from ..data.kinds import fill
from .all_gather_v import all_gather_v
from .all_to_all_v import all_to_all_v
from .case_fields import check_fields, frozen
from .even_collectives import EVEN_OPERATORS, even_outputs
from .linear_parallel.data import linear_inputs
from .linear_parallel.groups import LinearParallel
from .linear_parallel.reference import linear_parallel
from .reduce_scatter_v import reduce_scatter_v
from .send_recv import send_recv

# The operators in which every rank sends a slice of its own to every rank: the same call with
# counts in the struct (ATB's AllToAllV), and as input tensors (AllToAllVV2).
EXCHANGES = ("all_to_all_v", "all_to_all_v_v2")
# One message, of rank `root` to rank `peer`: what Send is tested with, and what Recv.
MESSAGES = ("send", "recv")
_OPERATORS = (
    "all_gather_v",
    "reduce_scatter_v",
    "linear_parallel",
    *EVEN_OPERATORS,
    *EXCHANGES,
    *MESSAGES,
)
# Fields that most cases do without: they are written where they say something.
_RARE = {"root": 0, "peer": 0, "transpose": False, "rdispls": ()}


@dataclass(frozen=True)
class Case:
    """One call of an operator on all its ranks; equal cases give equal tensors.

    `counts` and `displs` are in elements, one per rank: recvCounts and rdispls of all_gather_v,
    sendCounts and sdispls of reduce_scatter_v. `rows` are the rows of each rank's output, the
    length of its y. `op` is "" for all_gather_v. `kind` and `seed` choose x (see data.fill).
    linear_parallel has its parameters in `linear` and n in `columns`, and no counts. The operators
    of even_collectives have the counts of the V operator that does the same; `root` is broadcast's,
    `transpose` all_to_all's. EXCHANGES have P x P counts, displs and rdispls, the lines of the
    tables of `exchange.Exchange` one after the other (sendCounts, sdispls, rdispls of rank 0, of
    rank 1, ...), and `rows` are the elements that each rank receives. MESSAGES go from `root` to
    `peer`.

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
    peer: int = 0
    transpose: bool = False
    rdispls: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """Name that is unique among all cases and fit for a file."""
        return f"{self.operator}.p{self.rank_size}.{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values; `linear` and `columns` where they are set."""
        fields = asdict(self)
        if self.linear is None:
            del fields["linear"], fields["columns"]
        for name, usual in _RARE.items():
            if fields[name] == usual:
                del fields[name]
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Case:
        """Return the case that to_dict described.

        Raises:
            TypeError: a field is missing or unknown, or cannot have such a value.
        """
        check_fields(fields, _OPERATORS)
        values = {key: frozen(value) for key, value in fields.items()}
        if values.get("linear") is not None:
            linear = {key: frozen(value) for key, value in values["linear"].items()}
            values["linear"] = LinearParallel(**linear)
        return cls(**values)


def inputs(case: Case) -> list[dict[str, Array]]:
    """Return the input tensors of every rank, in the operator's order of inputs.

    all_gather_v: x, sendCount [1], recvCounts [P], rdispls [P], y [rows].
    reduce_scatter_v: x, sendCounts [P], sdispls [P], recvCount [1], y [rows].
    Counts and displacements are int64; y is float16 zeros, of which only the length matters;
    a bfloat16 x is np.uint16 bit patterns.
    linear_parallel: x, weight, and residual where the case has one.
    all_to_all_v_v2: x, sendCounts, sdispls, recvCounts, rdispls [P], y [n], int8 here.
    The others: x alone; of all_to_all_v the counts are in the struct (see struct_fields.py), of a
    message x is the sender's data, and only a shape and a dtype on the receiver.

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

    Of a message: what the receiver's output must be, and the x that all others still have.

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
        outputs = even_outputs(
            case.operator,
            xs,
            op=case.op,
            dtype=case.dtype,
            root=case.root,
            transpose=case.transpose,
        )
        return [[output] for output in outputs]
    if case.operator in EXCHANGES:
        return [[output] for output in all_to_all_v(xs, exchange_of(case))]
    if case.operator in MESSAGES:
        return [[x] for x in send_recv(xs, case.root, case.peer)]
    if case.linear is not None:
        weights = [own["weight"] for own in tensors]
        residuals = [own["residual"] for own in tensors if "residual" in own]
        return linear_parallel(case.linear, xs, weights, residuals, case.dtype)
    numbers = (case.counts, case.displs, case.rows, case.op, case.dtype)
    return [[output] for output in reduce_scatter_v(xs, *numbers)]


def exchange_of(case: Case) -> Exchange:
    """Return the tables of a case of EXCHANGES.

    Raises:
        ValueError: its lists are not P x P numbers.

    Example:
        >>> case = Case("all_to_all_v", "tiny", 2, "int8", (1, 2, 1, 0), (0, 1, 0, 1),
        ...             ((3,), (1,)), (2, 2), rdispls=(0, 1, 0, 2))
        >>> exchange_of(case).recv_counts
        ((1, 1), (2, 0))
    """
    lists = (case.counts, case.displs, case.rdispls)
    return Exchange(*(square(numbers, case.rank_size) for numbers in lists))


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
    if case.operator in (*EVEN_OPERATORS, *MESSAGES, "all_to_all_v"):
        return {"x": x}
    if case.operator == "all_to_all_v_v2":
        lists = exchange_of(case).lists(rank).items()
        counts = {name: np.array(numbers, np.int64) for name, numbers in lists}
        return {"x": x, **counts, "y": np.zeros(case.rows[rank], np.int8)}
    return _v_inputs(case, rank, x)


def _v_inputs(case: Case, rank: int, x: Array) -> dict[str, Array]:
    own = np.array([case.counts[rank]], np.int64)
    counts, displs = np.array(case.counts, np.int64), np.array(case.displs, np.int64)
    y = np.zeros(case.rows[rank], np.float16)
    if case.operator == "all_gather_v":
        return {"x": x, "sendCount": own, "recvCounts": counts, "rdispls": displs, "y": y}
    if case.operator == "reduce_scatter_v":
        return {"x": x, "sendCounts": counts, "sdispls": displs, "recvCount": own, "y": y}
    raise ValueError(f"operator {case.operator!r} has no reference here")
