"""Elements of any dtype as text, and the first rows of two tensors that differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.deviation import values_of
from ..data.dtypes import Array, bits_of, is_float

_ROWS_SHOWN = 3
_COLUMNS_SHOWN = 8


def shown(array: Array, dtype: str) -> list[str]:
    """Return the elements of a 1-D array as text, as short as possible but distinct.

    Example:
        >>> shown(np.array([0x3F80, 0x3F81], np.uint16), "bfloat16")
        ['1.0', '1.008']
        >>> shown(np.array([165, 1], np.uint8).view(np.bool_), "bool")
        ['0xa5', 'True']
    """
    if dtype == "bool":
        return [str(b == 1) if b < 2 else hex(b) for b in bits_of(array, dtype).tolist()]
    if not is_float(dtype):
        return [str(value) for value in array]
    if dtype == "bfloat16":
        # Four digits distinguish any two bfloat16.
        return [_number(value, precision=4) for value in values_of(array, dtype)]
    return [_number(value) for value in array]


def _number(value: Any, precision: int | None = None) -> str:
    size = abs(float(value))
    if size < 1e8 and size == int(size):
        return f"{value:.1f}"
    if 1e-4 <= size < 1e8 or not np.isfinite(size) or size == 0:
        text = np.format_float_positional(
            value, precision=precision, fractional=False, trim="0", unique=precision is None
        )
    else:
        text = np.format_float_scientific(value, precision=precision and precision - 1, trim="0")
    return str(text)


def first_rows(
    got: Sequence[Array],
    expected: Sequence[Array],
    masks: Sequence[npt.NDArray[np.bool_]],
    dtype: str,
    names: Sequence[str],
) -> list[str]:
    """Return the first rows that differ, got above expected, wrong elements marked by a star.

    Args:
        got, expected: the outputs.
        masks: True where an element is wrong, per output.
        dtype: name of their dtype.
        names: the outputs' names, which may be empty.

    Example:
        >>> a, b = np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]])
        >>> print("\\n".join(first_rows([a], [b], [a != b], "int64", ["rank 0"])))
        first rows that differ (* wrong):
          rank 0 row 1, columns 0..1
            got        3 4*
            expected   3  5
    """
    lines = ["first rows that differ (* wrong):"]
    for name, g, e, mask in zip(names, got, expected, masks, strict=True):
        for place, start, stop in _windows(mask):
            if len(lines) > 3 * (_ROWS_SHOWN - 1) + 1:
                return lines
            texts = [shown(a.reshape(-1)[start:stop], dtype) for a in (g, e)]
            stars = ["*" if bad else "" for bad in mask.reshape(-1)[start:stop]]
            texts[0] = [text + star for text, star in zip(texts[0], stars, strict=True)]
            cells = max(len(text) for part in texts for text in part)
            lines.append(f"  {name} {place}" if name else f"  {place}")
            for head, part in zip(("got", "expected"), texts, strict=True):
                lines.append(f"    {head:<10}" + " ".join(text.rjust(cells) for text in part))
    return lines


def _windows(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[str, int, int]]:
    """Yield parts of rows with wrong elements: their name, first and last flat position.

    A tensor of one column is shown in parts of several rows.
    """
    width = max(1, math.prod(mask.shape[1:]))
    flat = mask.reshape(-1)
    at = 0
    while flat[at:].any():
        first = at + int(np.argmax(flat[at:]))
        if width == 1:
            start, stop = max(at, first - 1), min(first - 1 + _COLUMNS_SHOWN, flat.size)
            yield f"rows {start}..{stop - 1}", start, stop
            at = stop
            continue
        row, column = divmod(first, width)
        start = max(0, min(column - 1, width - _COLUMNS_SHOWN))
        stop = min(start + _COLUMNS_SHOWN, width)
        more = f" of {width}" if width > _COLUMNS_SHOWN else ""
        yield (
            f"row {row}, columns {start}..{stop - 1}{more}",
            row * width + start,
            row * width + stop,
        )
        at = (row + 1) * width
