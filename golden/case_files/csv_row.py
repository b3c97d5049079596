"""One row of an ATB case file: a call and its expected end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..data.acl_types import ERRORS
from ..data.dtypes import DTYPES
from ..data.generators import DEFAULT_RANGE
from ..operators.operator import rank_size_of

# The letters of ExpectedError, and the step of an operation that must fail.
STAGES = {"C": "create", "I": "infer_shape", "S": "setup", "E": "execute"}
# The most ranks of shm; no tensors are made for more, which may be a typing error.
MOST_RANKS = 128
_SHOWN = 60


@dataclass(frozen=True)
class RowTensor:
    """A tensor as a row states it; outputs have no generator, range or file.

    Example:
        >>> RowTensor("float16", (10, 50), generator="random").generator
        'random'
    """

    dtype: str
    shape: tuple[int, ...]
    format: str = "nd"
    generator: str = "customize"
    range: tuple[float, float] = DEFAULT_RANGE
    file: str = ""

    @property
    def can_be_made(self) -> bool:
        """Whether numpy has an array type for it; otherwise it is passed as a description."""
        return self.dtype in DTYPES and all(dim >= 0 for dim in self.shape)


@dataclass(frozen=True)
class Expectation:
    """What a row expects: no error (stage ""), or a named error at one step of the operation.

    Example:
        >>> Expectation("infer_shape", "ERROR_INVALID_TENSOR_DIM").code
        8
        >>> str(Expectation())
        'NO_ERROR'
    """

    stage: str = ""
    name: str = "NO_ERROR"

    @property
    def code(self) -> int:
        """The status code, 0 where no error is expected."""
        return ERRORS[self.name]

    def __str__(self) -> str:
        letter = {stage: letter for letter, stage in STAGES.items()}.get(self.stage)
        return f"{letter}:{self.name}" if letter else self.name


@dataclass(frozen=True)
class CsvRow:
    """A row of a case file.

    `place` is file:line, for messages; file names of tensors are relative to the case file. Rows
    that expect an error at creation have no tensors, because creation fails before any is made;
    rows of an unknown operator have a number and a name only. `result_file` is OutTensorFile of a
    row without outputs: the expected x after the call. With `infers_outputs` the row does not say
    which outputs it has: they are those of infer_shape.

    Example:
        >>> row = CsvRow("a.csv:2", 1, "two ranks", "AllGatherVOperation", {"rankSize": 2})
        >>> row.rank_size, str(row.expected)
        (2, 'NO_ERROR')
    """

    place: str
    number: int
    name: str
    operator: str
    params: Mapping[str, Any] = field(hash=False)
    inputs: tuple[RowTensor, ...] = ()
    outputs: tuple[RowTensor, ...] = ()
    expected: Expectation = Expectation()
    soc_versions: tuple[str, ...] = ()
    result_file: str = ""
    infers_outputs: bool = False

    @property
    def rank_size(self) -> int:
        """Number of ranks by OpParam's rankSize; 0 where it has none."""
        return rank_size_of(self.params)


class RowError(ValueError):
    """A row that cannot be read: its place, the column, and the value.

    `text` replaces the message's words about the column and the value.

    `number`, `name` and `operator` are the row's, as far as they were read.

    Example:
        >>> print(RowError("a.csv:7", "InNum", "is not a whole number", "two"))
        a.csv:7: column InNum is not a whole number, got 'two'
    """

    number: int | None = None
    name: str = ""
    operator: str = ""

    def __init__(
        self, place: str, column: str, problem: str, got: str, text: str | None = None
    ) -> None:
        super().__init__(f"{place}: {text or f'column {column} {problem}, got {_short(got)}'}")
        self.place = place
        self.column = column
        self.got = got


def _short(cell: str) -> str:
    """Return a cell for a message; for a huge cell its beginning and its length."""
    if len(cell) <= 2 * _SHOWN:
        return repr(cell)
    return f"{cell[:_SHOWN]!r} and {len(cell) - _SHOWN} characters more"
