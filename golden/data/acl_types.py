"""ATB's names and numbers of dtypes, formats and errors, as in its case files and .bin files.

`bf16` is bfloat16 here, `float` float32 and `double` float64; every other word is the same. Words
without a numpy type of ours (complex64, float8_e5m2, ...) can be read in a row, but hold no data.
"""

from __future__ import annotations

from .dtypes import DTYPES

# aclDataType, by ATB's word.
_DTYPE_NUMBERS = {
    "float": 0,
    "float16": 1,
    "int8": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 6,
    "uint16": 7,
    "uint32": 8,
    "int64": 9,
    "uint64": 10,
    "double": 11,
    "bool": 12,
    "complex64": 16,
    "complex128": 17,
    "bf16": 27,
    "hifloat8": 34,
    "float8_e5m2": 35,
    "float8_e4m3fn": 36,
}
_OUR_WORDS = {"float": "float32", "double": "float64", "bf16": "bfloat16"}
_NUMBER_OF = {_OUR_WORDS.get(word, word): number for word, number in _DTYPE_NUMBERS.items()}

# aclFormat, by ATB's word.
FORMATS = {
    "undefined": -1,
    "nchw": 0,
    "nhwc": 1,
    "nd": 2,
    "nc1hwc0": 3,
    "fractal_z": 4,
    "nc1hwc0_c04": 12,
    "hwcn": 16,
    "ndhwc": 27,
    "fractal_nz": 29,
    "ncdhw": 30,
    "ndc1hwc0": 32,
    "fractal_z_3d": 33,
    "nc": 35,
    "ncl": 47,
}

# Status codes by name: ATB's, then those that collops adds from 100.
_ATB_ERRORS = (
    "NO_ERROR ERROR_INVALID_PARAM ERROR_INVALID_GRAPH ERROR_INTERNAL_ERROR ERROR_RT_FAIL "
    "ERROR_INVALID_IN_TENSOR_NUM ERROR_INVALID_TENSOR_DTYPE ERROR_INVALID_TENSOR_FORMAT "
    "ERROR_INVALID_TENSOR_DIM ERROR_INVALID_TENSOR_SIZE ERROR_OPERATION_NULL_RUNNER "
    "ERROR_GRAPH_INFERSHAPE_FUNC_FAIL ERROR_CANN_ERROR ERROR_INVALID_TENSOR_INI_MATCH "
    "ERROR_INVALID_TENSOR_ADDR ERROR_INVALID_TENSOR_NUM ERROR_INVALID_TENSOR_DIM_NUM "
    "ERROR_INVALID_SINGLE_OPERATION_PARAM ERROR_GRAPH_NODE_RESHAPE_FUNC_FAIL "
    "ERROR_INVALID_GRAPH_NODE_CHUNK ERROR_INVALID_CONTEXT_ADDR ERROR_INVALID_STREAM "
    "ERROR_INVALID_WORKSPACE_SIZE ERROR_INVALID_WORKSPACE_ADDR ERROR_INVALID_OPERATION_ADDR "
    "ERROR_HCCL_FAIL ERROR_OUT_OF_DEVICE_MEMORY ERROR_OUT_OF_HOST_MEMORY ERROR_COMM_EMPTY "
    "ERROR_COPY_HOST_MEMORY_FAIL"
).split()
_OUR_ERRORS = (
    "ERROR_TIMEOUT ERROR_PEER_LOST ERROR_RANK_MISMATCH ERROR_UNSUPPORTED ERROR_ABORTED".split()
)
ERRORS = {
    **{name: number for number, name in enumerate(_ATB_ERRORS)},
    **{name: number for number, name in enumerate(_OUR_ERRORS, start=100)},
}


def dtype_from_word(word: str) -> str:
    """Return the dtype that one of ATB's or golden's words means.

    Raises:
        ValueError: the word is unknown.

    Example:
        >>> dtype_from_word("bf16"), dtype_from_word("float"), dtype_from_word("uint32")
        ('bfloat16', 'float32', 'uint32')
    """
    name = _OUR_WORDS.get(word, word)
    if name not in _NUMBER_OF:
        raise ValueError(f"dtype {word!r} is unknown; use one of {', '.join(_DTYPE_NUMBERS)}")
    return name


def dtype_number(dtype: str) -> int:
    """Return the aclDataType of a dtype.

    Raises:
        ValueError: the dtype is unknown.

    Example:
        >>> dtype_number("bfloat16"), dtype_number("float32")
        (27, 0)
    """
    return _NUMBER_OF[dtype_from_word(dtype)]


def dtype_from_number(number: int) -> str:
    """Return the dtype of an aclDataType that golden's arrays can hold.

    Raises:
        ValueError: the number is unknown, or numpy has no such type.

    Example:
        >>> dtype_from_number(27)
        'bfloat16'
    """
    for name, known in _NUMBER_OF.items():
        if known == number and name in DTYPES:
            return name
    held = ", ".join(f"{_NUMBER_OF[name]} ({name})" for name in DTYPES)
    raise ValueError(f"aclDataType {number} cannot be held; use one of {held}")
