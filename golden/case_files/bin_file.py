"""ATB's .bin files: lines name=value up to $End=1, then the elements, little-endian.

    $Version=1.0
    $Object.Count=1
    $Object.Length=16
    dtype=1          (aclDataType)
    format=2         (aclFormat)
    dims=2,4
    $Object.data=0,16
    $End=1
    ...16 bytes...

Names that begin with $ are ignored by the reader, except that $End=1 ends the lines.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ..data.acl_types import FORMATS, dtype_from_number, dtype_number
from ..data.dtypes import Array, name_of, storage

_END = b"$End=1"
# ATB's files have about ten short lines; a file with more bytes before $End=1 is no .bin file.
_LONGEST_HEAD = 64 * 1024


def read_bin(path: Path) -> tuple[Array, str, str]:
    """Read a .bin file.

    Args:
        path: the file.

    Returns:
        The array (bfloat16 as np.uint16 bits), the name of its dtype, and the word of its format.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no .bin file, numpy has no such dtype, or its length contradicts dims.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_bin(Path(folder) / "x.bin", np.array([[1, -2]], np.int8))
        ...     array, dtype, form = read_bin(Path(folder) / "x.bin")
        >>> array.tolist(), dtype, form
        ([[1, -2]], 'int8', 'nd')
    """
    content = path.read_bytes()
    lines, start = _head(content, path)
    attributes = dict(_attribute(line, path) for line in lines)
    try:
        dtype = dtype_from_number(_whole_number(attributes, "dtype"))
        form = _format_word(_whole_number(attributes, "format"))
        shape = _dims(attributes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    carrier = storage(dtype)
    need = math.prod(shape) * carrier.itemsize
    if len(content) - start != need:
        raise ValueError(
            f"{path}: dims {list(shape)} of {dtype} are {need} bytes, "
            f"got {len(content) - start} after $End=1"
        )
    array: Array = np.frombuffer(content, carrier.newbyteorder("<"), offset=start)
    return array.astype(carrier).reshape(shape), dtype, form


def write_bin(path: Path, array: Array, dtype: str | None = None, *, form: str = "nd") -> None:
    """Write an array as ATB's .bin file.

    Args:
        path: the file; one of this name is replaced.
        array: the tensor; bfloat16 as np.uint16 bits.
        dtype: name of its dtype; None: the array's numpy type determines it.
        form: word of the format, a key of acl_types.FORMATS.

    Raises:
        OSError: the file cannot be written.
        ValueError: the array is not stored as `dtype` is, or `form` is unknown.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_bin(Path(folder) / "x.bin", np.zeros((2, 4), np.float16))
        ...     (Path(folder) / "x.bin").read_bytes().split(b"$End")[0].decode().splitlines()[3:6]
        ['dtype=1', 'format=2', 'dims=2,4']
    """
    name = dtype or name_of(array)
    carrier = storage(name)
    if array.dtype != carrier:
        raise ValueError(f"{path}: {name} is carried as {carrier}, got an array of {array.dtype}")
    if form not in FORMATS:
        raise ValueError(f"{path}: format {form!r} is unknown; use one of {', '.join(FORMATS)}")
    data = np.ascontiguousarray(array).astype(carrier.newbyteorder("<")).tobytes()
    lines = [
        "$Version=1.0",
        "$Object.Count=1",
        f"$Object.Length={len(data)}",
        f"dtype={dtype_number(name)}",
        f"format={FORMATS[form]}",
        f"dims={','.join(str(n) for n in array.shape or (1,))}",
        f"$Object.data=0,{len(data)}",
    ]
    path.write_bytes("\n".join(lines).encode() + b"\n" + _END + b"\n" + data)


def _head(content: bytes, path: Path) -> tuple[list[bytes], int]:
    """Return the lines before $End=1, and where the elements begin."""
    lines: list[bytes] = []
    start = 0
    while start < min(len(content), _LONGEST_HEAD):
        end = content.find(b"\n", start)
        if end < 0:
            break
        line = content[start:end].rstrip(b"\r")
        start = end + 1
        if line.replace(b" ", b"") == _END:
            return lines, start
        lines.append(line)
    raise ValueError(
        f"{path}: has no line $End=1, so it is not a .bin file of ATB; raw bytes: "
        'np.save("x.npy", np.fromfile("raw.bin", dtype).reshape(...))'
    )


def _attribute(line: bytes, path: Path) -> tuple[str, str]:
    try:
        name, sign, value = line.decode("utf-8").partition("=")
    except UnicodeDecodeError:
        name, sign, value = "", "", ""
    if not sign:
        raise ValueError(f"{path}: a line before $End=1 is not name=value, got {line[:40]!r}")
    return name.strip(), value.strip()


def _whole_number(attributes: dict[str, str], name: str) -> int:
    if name not in attributes:
        raise ValueError(f"has no line {name}=")
    try:
        return int(attributes[name])
    except ValueError:
        raise ValueError(f"{name} is not a whole number, got {attributes[name]!r}") from None


def _dims(attributes: dict[str, str]) -> tuple[int, ...]:
    if "dims" not in attributes:
        raise ValueError("has no line dims=")
    words = [word for word in attributes["dims"].split(",") if word.strip()]
    try:
        shape = tuple(int(word) for word in words)
    except ValueError:
        shape = (-1,)
    if any(n < 0 for n in shape):
        raise ValueError(f"dims are not numbers >= 0, got {attributes['dims']!r}")
    return shape


def _format_word(number: int) -> str:
    for word, known in FORMATS.items():
        if known == number:
            return word
    raise ValueError(f"format {number} is unknown; use one of {sorted(FORMATS.values())}")
