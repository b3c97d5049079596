"""Evidence, the input of an explanation, and Diagnosis, its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..data.bit_patterns import plain_bits
from ..data.bounds import Bound
from ..data.deviation import values_of
from ..data.dtypes import Array, bits_of, storage
from ..operators.output_layout import OutputLayout

# A pattern is named if it would occur by chance less than once in 2^16 random tensors.
ENOUGH_BITS = 16.0
_POISON = 0xA5
_SAMPLE = 65536


@dataclass(frozen=True)
class Diagnosis:
    """The pattern of a difference: a kind (see explain.KINDS) and a sentence.

    Example:
        >>> Diagnosis("rounding", "rounding: 3 elements").kind
        'rounding'
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Evidence:
    """Outputs, the expected outputs, and which elements are wrong.

    `masks` has True where an element is wrong; `limits` are the largest absolute errors that count
    as equal, None for bit for bit; `names` are the outputs' names.

    Example:
        >>> a, b = np.array([1, 2], np.int8), np.array([1, 3], np.int8)
        >>> Evidence([a], [b], [a != b], "int8", [None], OutputLayout(), [""]).wrong(0).tolist()
        [1]
    """

    got: Sequence[Array]
    expected: Sequence[Array]
    masks: Sequence[npt.NDArray[np.bool_]]
    dtype: str
    limits: Sequence[Bound | None]
    layout: OutputLayout
    names: Sequence[str]

    def wrong(self, output: int) -> npt.NDArray[np.int64]:
        """Return the positions of an output's wrong elements, flat."""
        return np.flatnonzero(self.masks[output])

    def bad_outputs(self) -> list[int]:
        """Return the outputs that have wrong elements."""
        return [i for i, mask in enumerate(self.masks) if mask.any()]

    @cached_property
    def distinct(self) -> frozenset[int]:
        """The outputs with wrong elements, without copies of each other."""
        seen = {(self.got[i].tobytes(), self.expected[i].tobytes()): i for i in self.bad_outputs()}
        return frozenset(seen.values())

    def name(self, output: int) -> str:
        """Return an output's name, or "the output" where it has none."""
        return self.names[output] or "the output"

    def where(self, outputs: Sequence[int]) -> str:
        """Return the names of outputs as a list for a sentence."""
        if len(outputs) == len(self.got) > 1:
            return "all outputs"
        return listed([self.name(output) for output in outputs])


def is_poison(array: Array, dtype: str) -> npt.NDArray[np.bool_]:
    """Return where an element is what data.poison left there, flat.

    Example:
        >>> is_poison(np.array([-91, 0], np.int8), "int8").tolist()
        [True, False]
    """
    pattern = np.full(storage(dtype).itemsize, _POISON, np.uint8)
    bits = bits_of(array, dtype).reshape(-1)
    return np.asarray(bits == pattern.view(bits.dtype)[0])


def bits_per_match(expected: Array, dtype: str, limit: Bound | None = None) -> float:
    """Return how many bits of evidence it is that a wrong element equals a certain expected one.

    `log2(distinct values)`; at least 8 where nearly all values are distinct and wide, since few
    random numbers would hit any of them. A tolerance makes fewer values distinct.

    Example:
        >>> bits_per_match(np.array([True, False] * 50), "bool")
        1.0
        >>> bits_per_match(np.arange(20, dtype=np.int32), "int32")
        8.0
    """
    bits = plain_bits(expected, dtype)
    bits = bits[:: bits.size // _SAMPLE + 1]
    if dtype != "bool":
        # Gaps and tails are zero, even if all data are distinct.
        bits = bits[bits != 0]
    distinct = float(np.unique(bits).size)
    if distinct < 2:
        return 0.0
    if limit is not None:
        values = values_of(expected, dtype).reshape(-1)
        values = values[np.isfinite(values)]
        with np.errstate(over="ignore"):
            width = 2 * float(np.median(limit)) if limit.size else 0.0
        spread = float(np.ptp(values)) if values.size else 0.0
        return math.log2(min(distinct, 1 + spread / width) if width > 0 else distinct)
    if bits.dtype.itemsize > 1 and 2 * distinct > bits.size > 1:
        return max(8.0, math.log2(distinct))
    return math.log2(distinct)


def counted(number: int, word: str) -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "element"), counted(3, "element")
        ('1 element', '3 elements')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"


def listed(words: Sequence[str], *, most: int = 4) -> str:
    """Return words as a list for a sentence.

    Example:
        >>> listed(["a", "b", "c"]), listed(list("abcdefg"))
        ('a, b and c', 'a, b, c, d and 3 more')
    """
    shown = list(words[:most])
    more = len(words) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
