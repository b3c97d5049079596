"""The dtypes of the operators by name, and the bits of the floating ones.

numpy has no bfloat16: its arrays are carried as np.uint16 bit patterns.  No other dtype in the
table is stored in 16 unsigned bits, so an array's numpy dtype always tells its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_STORAGE: dict[str, type[np.generic]] = {
    "float16": np.float16,
    "bfloat16": np.uint16,
    "float32": np.float32,
    "float64": np.float64,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "bool": np.bool_,
}
DTYPES = tuple(_STORAGE)
REDUCE_DTYPES = tuple(name for name in DTYPES if name != "bool")


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE 754 binary format, described by its width and the bits of its mantissa.

    Example:
        >>> half = float_format("float16")
        >>> hex(half.infinity), half.bias, half.largest
        ('0x7c00', 15, 65504.0)
    """

    width: int
    mantissa: int

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        """Bit pattern of +infinity; a magnitude above it is NaN."""
        return (self.sign - 1) >> self.mantissa << self.mantissa

    @property
    def bias(self) -> int:
        """Exponent bias, also the exponent of the largest number."""
        return self.infinity >> (self.mantissa + 1)

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of one rounding to nearest."""
        return float(2.0 ** -(self.mantissa + 1))

    @property
    def smallest(self) -> float:
        """The smallest subnormal."""
        return float(2.0 ** (1 - self.bias - self.mantissa))

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float((2.0 - 2.0**-self.mantissa) * 2.0**self.bias)


_FORMATS = {
    "float16": FloatFormat(16, 10),
    "bfloat16": FloatFormat(16, 7),
    "float32": FloatFormat(32, 23),
    "float64": FloatFormat(64, 52),
}
FLOAT_DTYPES = tuple(_FORMATS)


def storage(name: str) -> np.dtype[Any]:
    """Return the numpy dtype that carries the dtype `name`.

    Raises:
        ValueError: `name` is not in DTYPES.

    Example:
        >>> storage("bfloat16").name, storage("float32").name
        ('uint16', 'float32')
    """
    if name not in _STORAGE:
        raise ValueError(f"dtype {name!r} is unknown; use one of {', '.join(DTYPES)}")
    return np.dtype(_STORAGE[name])


def name_of(array: Array) -> str:
    """Return the name of the dtype an array carries; uint16 means bfloat16.

    Raises:
        ValueError: the array's dtype carries none of DTYPES.

    Example:
        >>> name_of(np.zeros(1, np.uint16)), name_of(np.zeros(1, np.int8))
        ('bfloat16', 'int8')
    """
    for name, kind in _STORAGE.items():
        if array.dtype == kind:
            return name
    raise ValueError(f"an array of {array.dtype} carries none of {', '.join(DTYPES)}")


def is_float(name: str) -> bool:
    """Return whether the dtype `name` is a floating type.

    Example:
        >>> is_float("bfloat16"), is_float("int8")
        (True, False)
    """
    return name in _FORMATS


def float_format(name: str) -> FloatFormat:
    """Return the format of a floating dtype.

    Raises:
        ValueError: `name` is not a floating dtype.

    Example:
        >>> float_format("bfloat16").unit_roundoff == 2.0**-8
        True
    """
    if name not in _FORMATS:
        raise ValueError(f"dtype {name!r} is not floating; use one of {', '.join(FLOAT_DTYPES)}")
    return _FORMATS[name]


def bits_of(array: Array, name: str) -> Array:
    """Return an array's bit patterns as unsigned integers of the same shape, without a copy.

    Raises:
        ValueError: the array is not stored as `name` is.

    Example:
        >>> [hex(b) for b in bits_of(np.array([-0.0, 1.0], np.float16), "float16").tolist()]
        ['0x8000', '0x3c00']
    """
    if array.dtype != storage(name):
        raise ValueError(f"{name} is carried as {storage(name)}, got an array of {array.dtype}")
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def is_nan(array: Array, name: str) -> npt.NDArray[np.bool_]:
    """Return where an array of dtype `name` is NaN; nowhere for a dtype that is not floating.

    Example:
        >>> is_nan(np.array([0x7F80, 0x7FC0, 0xFFFF], np.uint16), "bfloat16").tolist()
        [False, True, True]
    """
    bits = bits_of(array, name)
    if not is_float(name):
        return np.zeros(bits.shape, np.bool_)
    form = float_format(name)
    return np.asarray((bits & bits.dtype.type(form.sign - 1)) > form.infinity)
