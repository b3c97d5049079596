"""Finds unwritten elements, poison or zeros, in a rank's whole block or anywhere."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..data.deviation import values_of
from .evidence import (
    ENOUGH_BITS,
    Diagnosis,
    Evidence,
    bits_per_match,
    counted,
    is_poison,
    listed,
)


def blanks(evidence: Evidence, output: int) -> tuple[npt.NDArray[np.bool_], ...]:
    """Return where an output holds poison, and where zeros in place of other numbers, flat.

    Example:
        >>> from ..operators.output_layout import OutputLayout
        >>> a, b = np.array([-91, 0, 2], np.int8), np.array([1, 1, 1], np.int8)
        >>> parts = Evidence([a], [b], [a != b], "int8", [None], OutputLayout(), [""])
        >>> [mask.tolist() for mask in blanks(parts, 0)]
        [[True, False, False], [False, True, False]]
    """
    got, expected = evidence.got[output], evidence.expected[output]
    dtype = evidence.dtype
    zero = (values_of(got, dtype) == 0) & (values_of(expected, dtype) != 0)
    return is_poison(got, dtype), zero.reshape(-1)


def missing_blocks(evidence: Evidence) -> Diagnosis | None:
    """Explain wrong elements by blocks of ranks that were never written, or return None.

    Every wrong element lies in a block that holds poison or zeros from end to end.

    Example:
        >>> from ..operators.output_layout import gather_layout
        >>> a, b = np.array([1, 2, 0, 0, 0], np.int32), np.arange(1, 6, dtype=np.int32)
        >>> parts = Evidence([a], [b], [a != b], "int32", [None], gather_layout([2, 3]), [""])
        >>> missing_blocks(parts).text
        'missing rank 1: its block (elements 2..4) was left zero in the output'
    """
    ranks: dict[int, str] = {}
    bits, states = 0.0, set()
    for output in evidence.bad_outputs():
        left = evidence.wrong(output)
        blocks = [block for block in evidence.layout.of(output) if block.count]
        absent = []
        for block in blocks:
            inside = (left >= block.start) & (left < block.stop)
            for state, blank in zip(_STATES, blanks(evidence, output), strict=True):
                if state == "zero":
                    blank = blank | _is_right_zero(evidence, output)
                if inside.any() and blank[block.start : block.stop].all():
                    if output in evidence.distinct:
                        bits += _bits(evidence, output, state) * block.count
                    states.add(state)
                    left = left[~inside]
                    absent.append(block)
                    break
        if left.size or not absent or len(absent) == len(blocks):
            return None
        for block in absent:
            ranks.setdefault(block.rank, f"elements {block.start}..{block.stop - 1}")
    if not ranks or bits < ENOUGH_BITS:
        return None
    where = evidence.where(evidence.bad_outputs())
    names = listed([str(rank) for rank in sorted(ranks)])
    places = listed([ranks[rank] for rank in sorted(ranks)])
    one = len(ranks) == 1
    return Diagnosis(
        "missing rank",
        f"missing rank{'' if one else 's'} {names}: {'its block' if one else 'their blocks'} "
        f"({places}) {'was' if one else 'were'} left {' or '.join(sorted(states))} in {where}",
    )


def unwritten_gap(evidence: Evidence) -> Diagnosis | None:
    """Explain wrong elements by memory that was never written, or return None.

    Example:
        >>> from ..data.kinds import poison
        >>> from ..operators.output_layout import OutputLayout
        >>> a, b = poison((4,), "float32"), np.zeros(4, np.float32)
        >>> parts = Evidence([a], [b], [a != b], "float32", [None], OutputLayout(), [""])
        >>> unwritten_gap(parts).text
        'unwritten gap: 4 elements were left poison, the first at element 0 of the output'
    """
    bits, count, states = 0.0, 0, set()
    for output in evidence.bad_outputs():
        left = evidence.wrong(output)
        for state, blank in zip(_STATES, blanks(evidence, output), strict=True):
            hit = blank[left]
            if hit.any():
                states.add(state)
                if output in evidence.distinct:
                    each = _bits_of_zeros if state == "zero" else _bits_of_poison
                    bits += each(evidence, output) * int(hit.sum())
                count += int(hit.sum())
                left = left[~hit]
        if left.size:
            return None
    if bits < ENOUGH_BITS:
        return None
    first = evidence.bad_outputs()[0]
    return Diagnosis(
        "unwritten gap",
        f"unwritten gap: {counted(count, 'element')} {'was' if count == 1 else 'were'} left "
        f"{' or '.join(sorted(states))}, the first at "
        f"element {evidence.wrong(first)[0]} of {evidence.name(first)}",
    )


_STATES = ("poison", "zero")


def _is_right_zero(evidence: Evidence, output: int) -> npt.NDArray[np.bool_]:
    """Return where zero is the expected value, which a block that was left zero may contain."""
    value = values_of(evidence.got[output], evidence.dtype).reshape(-1)
    return np.asarray((value == 0) & ~evidence.masks[output].reshape(-1))


def _bits(evidence: Evidence, output: int, state: str) -> float:
    """Return the evidence of one element of a block that is blank from end to end."""
    expected = evidence.expected[output]
    if state == "poison":
        return 8.0 * expected.dtype.itemsize
    return bits_per_match(expected, evidence.dtype, evidence.limits[output])


def _bits_of_poison(evidence: Evidence, output: int) -> float:
    return _bits(evidence, output, "poison")


def _bits_of_zeros(evidence: Evidence, output: int) -> float:
    """Return the evidence of one unwritten zero: little if many elements are zero."""
    expected = evidence.expected[output]
    each = bits_per_match(expected, evidence.dtype, evidence.limits[output])
    share = float(np.mean(values_of(expected, evidence.dtype) == 0))
    return min(each, -math.log2(share)) if share else each
