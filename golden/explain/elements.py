"""Patterns that need only the outputs: bytes swapped, a matrix transposed, NaN, another shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..data.dtypes import Array, differs, float_format, is_float, is_nan, same_bits
from ..operators.output_layout import Block
from .evidence import ENOUGH_BITS, Diagnosis, Evidence, bits_per_match, counted, is_poison, listed


@dataclass(frozen=True)
class Rearrangement:
    """What was done to the bytes or places of an expected output, and what is made of it.

    Example:
        >>> REARRANGEMENTS[0].make(np.array([1], np.int16)).tolist()
        [256]
    """

    kind: str
    text: str
    make: Callable[[Array], Array]


def _transposed(expected: Array) -> Array:
    """Return the transposed matrix in the memory of the output, whose shape is kept."""
    if expected.ndim < 2:
        return expected
    return np.ascontiguousarray(expected.swapaxes(-1, -2)).reshape(expected.shape)


REARRANGEMENTS = (
    Rearrangement(
        "byte order",
        "the bytes of each element are swapped (big-endian read as little-endian)",
        lambda expected: expected.byteswap(),
    ),
    Rearrangement("transposed", "the elements are right, but lie column by column", _transposed),
)


def rearranged(evidence: Evidence) -> Diagnosis | None:
    """Explain outputs by a known rearrangement of the whole expected ones, or return None.

    Example:
        >>> from ..operators.output_layout import OutputLayout
        >>> b = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
        >>> a = b.byteswap()
        >>> rearranged(Evidence([a], [b], [a != b], "int32", [None], OutputLayout(), [""])).kind
        'byte order'
    """
    for one in REARRANGEMENTS:
        bits = 0.0
        for output in evidence.bad_outputs():
            got, expected = evidence.got[output], evidence.expected[output]
            if differs(got, one.make(expected), evidence.dtype).any():
                break
            if output in evidence.distinct:
                wrong = int(evidence.masks[output].sum())
                bits += wrong * bits_per_match(expected, evidence.dtype)
        else:
            if bits >= ENOUGH_BITS + 1:
                where = evidence.where(evidence.bad_outputs())
                return Diagnosis(one.kind, f"{one.kind}: {one.text} in {where}")
    return None


def nan_rows(evidence: Evidence) -> Diagnosis | None:
    """Explain outputs in which all that is wrong is NaN, by the rows that have it, or return None.

    Example:
        >>> from ..operators.output_layout import OutputLayout
        >>> b = np.ones((3, 4), np.float32)
        >>> a = np.where(np.arange(3)[:, None] == 1, np.float32("nan"), b)
        >>> nan_rows(Evidence([a], [b], [a != b], "float32", [None], OutputLayout(), [""])).text
        'NaN: row 1 of the output is NaN; all else is right'
    """
    if not is_float(evidence.dtype):
        return None
    form = float_format(evidence.dtype)
    # Of random bits so many are NaN as have the largest exponent.
    bits_each = form.width - 1 - form.mantissa
    bits, places = 0, []
    for output in evidence.bad_outputs():
        mask = evidence.masks[output]
        nan = is_nan(evidence.got[output], evidence.dtype)
        if (mask & ~nan).any():
            return None
        bits += bits_each * int(mask.sum()) if output in evidence.distinct else 0
        lines = nan.reshape(nan.shape[0] if nan.ndim else 1, -1)
        rows = np.flatnonzero(lines.any(axis=1)).tolist()
        whole = bool(lines[rows].all())
        places.append(f"{_rows(rows)} of {evidence.name(output)} {_be(rows, whole)}")
    if bits < ENOUGH_BITS:
        return None
    return Diagnosis("NaN", f"NaN: {listed(places)}; all else is right")


def _rows(rows: Sequence[int]) -> str:
    return f"row{'' if len(rows) == 1 else 's'} {listed([str(row) for row in rows])}"


def _be(rows: Sequence[int], whole: bool) -> str:
    if whole:
        return "is NaN" if len(rows) == 1 else "are NaN"
    return "has NaN" if len(rows) == 1 else "have NaN"


def other_shape(
    got: Array, expected: Array, dtype: str, blocks: Sequence[Block], name: str
) -> Diagnosis | None:
    """Explain an output of another shape than the expected one, or return None.

    Example:
        >>> from ..operators.output_layout import gather_layout
        >>> b = np.arange(1, 25, dtype=np.float32).reshape(6, 4)
        >>> a = np.delete(b, [2, 3], axis=0)
        >>> other_shape(a, b, "float32", gather_layout([8, 8, 8]).of(0), "").text
        "wrong shape: rank 1's block (rows 2..3) is missing; all else is right"
    """
    where = f" in {name}" if name else ""
    for text, wanted in _shapes(got, expected, blocks):
        evidence = min(wanted.size, got.size) * bits_per_match(expected, dtype)
        if evidence >= ENOUGH_BITS and same_bits(got, wanted, dtype):
            return Diagnosis("wrong shape", f"wrong shape: {text}; all else is right{where}")
    padded = _padded(got, expected, dtype, blocks)
    if padded:
        return Diagnosis("wrong shape", f"wrong shape: {padded}{where}")
    return None


def _shapes(got: Array, expected: Array, blocks: Sequence[Block]) -> Iterator[tuple[str, Array]]:
    """Yield hypotheses about a shape: what happened, and what the output would be."""
    if got.ndim == expected.ndim == 2 and got.shape == expected.shape[::-1]:
        yield "the output is transposed", expected.T
    if got.size == expected.size:
        yield "only the shape differs, the elements are in order", expected.reshape(got.shape)
    if got.ndim != expected.ndim or got.ndim == 0 or got.shape[1:] != expected.shape[1:]:
        return
    width = max(1, math.prod(expected.shape[1:]))
    for block in blocks:
        if block.count == expected.size - got.size:
            flat = expected.reshape(-1)
            rest = np.concatenate([flat[: block.start], flat[block.stop :]])
            first, last = block.start // width, (block.stop - 1) // width
            text = f"rank {block.rank}'s block ({_span(first, last)}) is missing"
            yield text, rest.reshape(got.shape)
    gone = len(expected) - len(got)
    if gone > 0:
        first = _first_unlike(got, expected)
        text = f"{_span(first, first + gone - 1)} of the expected ones {_is(gone)} missing"
        yield text, np.delete(expected, slice(first, first + gone), axis=0)
    if gone < 0:
        first = _first_unlike(got, expected)
        more = got[first : first - gone]
        text = f"{_span(first, first - gone - 1)} {_is(-gone)} too many"
        yield text, np.insert(expected, [first] * -gone, more, axis=0)


def _first_unlike(got: Array, expected: Array) -> int:
    """Return the first row at which two tensors differ, byte by byte."""
    rows = min(len(got), len(expected))
    alike = [a.tobytes() == b.tobytes() for a, b in zip(got[:rows], expected[:rows], strict=True)]
    return alike.index(False) if False in alike else rows


def _span(first: int, last: int) -> str:
    return f"row {first}" if first == last else f"rows {first}..{last}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _padded(got: Array, expected: Array, dtype: str, blocks: Sequence[Block]) -> str:
    """Return which blocks were padded to the length of the largest; empty if that does not fit."""
    if not blocks or got.shape[1:] != expected.shape[1:]:
        return ""
    ordered = sorted(blocks, key=lambda block: block.start)
    longest = max(block.count for block in blocks)
    flat, whole = got.reshape(-1), expected.reshape(-1)
    if got.size != longest * len(blocks) or sum(block.count for block in blocks) != whole.size:
        return ""
    short = []
    for place, block in enumerate(ordered):
        own = flat[place * longest : (place + 1) * longest]
        if not same_bits(own[: block.count], whole[block.start : block.stop], dtype):
            return ""
        rest = own[block.count :]
        # Nobody knows what is in padding; zeros and poison are told.
        if rest.size:
            blank = not rest.any() or bool(is_poison(rest, dtype).all())
            short.append(f"rank {block.rank}'s by {rest.size}{'' if blank else ' (not blank)'}")
    if whole.size * bits_per_match(expected, dtype) < ENOUGH_BITS:
        return ""
    what = counted(longest, "element")
    return f"every block is padded to {what}: {listed(short)}"
