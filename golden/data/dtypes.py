"""The dtypes of the operators by name, the bits of the floating ones, and bfloat16 on numpy.

numpy has no bfloat16: its arrays are carried as np.uint16 bit patterns.  No other dtype in the
table is stored in 16 unsigned bits, so an array's numpy dtype always tells its name.  Equal means
bit for bit, with any NaN equal to any NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .words import nearest, unknown

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


# Other words for the same dtypes, which every command takes.
_WORDS = {
    "float16": ("f16", "fp16", "half"),
    "bfloat16": ("bf16",),
    "float32": ("f32", "fp32", "float"),
    "float64": ("f64", "fp64", "double"),
    "int8": ("i8",),
    "uint8": ("u8",),
    "int16": ("i16",),
    "int32": ("i32",),
    "int64": ("i64",),
}
NAME_OF_WORD = {word: name for name, words in _WORDS.items() for word in words}


def dtype_named(word: str) -> str:
    """Return the dtype that a word of a command line means; upper and lower case are equal.

    Raises:
        ValueError: no dtype has this name.

    Example:
        >>> dtype_named("f32"), dtype_named("FP32"), dtype_named("float32"), dtype_named("bf16")
        ('float32', 'float32', 'float32', 'bfloat16')
    """
    lower = word.lower()
    name = NAME_OF_WORD.get(lower, lower)
    if name not in _STORAGE:
        known = ", ".join("/".join((one, *_WORDS.get(one, ()))) for one in DTYPES)
        words = DTYPES if nearest(word, DTYPES) else NAME_OF_WORD
        raise unknown("dtype", word, words, f"one of {known}")
    return name


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
        raise unknown("dtype", name, DTYPES)
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
    raise ValueError(f"an array of {array.dtype} is not one of {', '.join(DTYPES)}")


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


def to_float32(bits: Array) -> npt.NDArray[np.float32]:
    """Return the values of bfloat16 bit patterns; every one is exact in float32.

    `value = float32 with bits (pattern << 16)`

    Args:
        bits: bit patterns, np.uint16, any shape.

    Returns:
        float32 values of the same shape.

    Raises:
        ValueError: `bits` is not np.uint16.

    Example:
        >>> to_float32(np.array([0x3F80, 0xC000, 0x0001], np.uint16)).tolist()
        [1.0, -2.0, 9.183549615799121e-41]
    """
    wide = bits_of(bits, "bfloat16").astype(np.uint32) << np.uint32(16)
    return np.asarray(wide).view(np.float32)


def from_float32(values: Array) -> npt.NDArray[np.uint16]:
    """Return float32 values as bfloat16 bit patterns, rounded to nearest even.

    `pattern = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16`; subnormals are kept, what is at least
    half a step beyond the largest number becomes infinity, NaN becomes quiet and keeps its sign.

    Args:
        values: np.float32, any shape.

    Returns:
        np.uint16 bit patterns of the same shape.

    Raises:
        ValueError: `values` is not np.float32.

    Example:
        >>> from_float32(np.array([1.0, 1.00390625, 1.01171875], np.float32)).tolist()
        [16256, 16256, 16258]
    """
    bits = bits_of(values, "float32")
    top = bits >> np.uint32(16)
    nan = is_nan(values, "float32")
    finite = np.where(nan, np.uint32(0), bits)
    rounded = (finite + np.uint32(0x7FFF) + (top & np.uint32(1))) >> np.uint32(16)
    return np.asarray(np.where(nan, top | np.uint32(0x40), rounded)).astype(np.uint16)


def widened(array: Array, name: str) -> npt.NDArray[np.float32]:
    """Return the values of a tensor of dtype `name` in float32.

    Example:
        >>> widened(np.array([0x3F80], np.uint16), "bfloat16").tolist()
        [1.0]
    """
    return to_float32(array) if name == "bfloat16" else array.astype(np.float32)


def rounded(values: Array, name: str) -> Array:
    """Return numbers as dtype `name`, rounded to nearest even; bfloat16 by way of float32.

    What is too large becomes infinite.

    Example:
        >>> rounded(np.array([1.0, 2.0]), "bfloat16").tolist(), rounded(np.array([1e9]), "float16")
        ([16256, 16384], array([inf], dtype=float16))
    """
    with np.errstate(over="ignore"):
        if name == "bfloat16":
            return from_float32(values.astype(np.float32))
        return values.astype(storage(name))


def differs(a: Array, b: Array, dtype: str) -> npt.NDArray[np.bool_]:
    """Return where two tensors of one shape differ.

    `differs = bits(a) != bits(b) and not (isnan(a) and isnan(b))`; so -0 differs from +0.

    Args:
        a, b: arrays that carry `dtype`, of one shape.
        dtype: name of their dtype.

    Returns:
        Booleans of that shape.

    Raises:
        ValueError: the shapes differ, or an array does not carry `dtype`.

    Example:
        >>> nan = float("nan")
        >>> x = np.array([0.0, nan, 1.0], np.float32)
        >>> y = np.array([-0.0, -nan, 1.0], np.float32)
        >>> differs(x, y, "float32").tolist()
        [True, False, False]
    """
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    both_nan = is_nan(a, dtype) & is_nan(b, dtype)
    return np.asarray((bits_of(a, dtype) != bits_of(b, dtype)) & ~both_nan)


def same_bits(a: Array, b: Array, dtype: str) -> bool:
    """Return whether two tensors have one shape and are equal bit for bit (any NaN is equal).

    Example:
        >>> zero = np.zeros(2, np.float16)
        >>> same_bits(zero, zero.copy(), "float16"), same_bits(zero, -zero, "float16")
        (True, False)
    """
    return a.shape == b.shape and not bool(differs(a, b, dtype).any())
