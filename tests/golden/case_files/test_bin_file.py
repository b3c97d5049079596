"""ATB's .bin files: every dtype there and back, files as ATB writes them, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golden.case_files.bin_file import read_bin, write_bin
from golden.data import fill
from golden.data.acl_types import FORMATS, dtype_number
from golden.data.dtypes import DTYPES

HEAD = b"$Version=1.0\n$Object.Count=1\n$Object.Length=4\n"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (3, 4), (0, 2), (2, 1, 2, 1, 2, 1, 2, 3)])
def test_a_bin_file_reads_back(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = fill(shape, dtype, 3, kind="random")
    write_bin(tmp_path / "x.bin", array)
    again, name, form = read_bin(tmp_path / "x.bin")
    assert (name, form, again.dtype, again.shape) == (dtype, "nd", array.dtype, shape)
    assert again.tobytes() == array.tobytes()
    again[...] = 0  # the reader's array is the caller's to change


@pytest.mark.parametrize("form", FORMATS)
def test_formats_are_kept(tmp_path: Path, form: str) -> None:
    write_bin(tmp_path / "x.bin", np.ones((1, 2, 3, 4), np.float32), form=form)
    assert read_bin(tmp_path / "x.bin")[2] == form


def test_the_bytes_of_a_file(tmp_path: Path) -> None:
    array = np.array([[1.0, 2.0], [-1.0, 0.5]], np.float32).T
    write_bin(tmp_path / "x.bin", (array.view(np.uint32) >> 16).astype(np.uint16), "bfloat16")
    assert (tmp_path / "x.bin").read_bytes() == (
        b"$Version=1.0\n$Object.Count=1\n$Object.Length=8\ndtype=27\nformat=2\ndims=2,2\n"
        b"$Object.data=0,8\n$End=1\n" + bytes([0x80, 0x3F, 0x80, 0xBF, 0, 0x40, 0, 0x3F])
    )


def test_a_file_of_another_writer(tmp_path: Path) -> None:
    lines = b"dims=2,1\n$Object.Length=99\nname=left=right\nformat=29\r\n$Mood=good\ndtype=3\n"
    (tmp_path / "x.bin").write_bytes(lines + b"$End=1\n" + b"\x01\0\0\0\xfe\xff\xff\xff")
    array, dtype, form = read_bin(tmp_path / "x.bin")
    assert (array.tolist(), dtype, form) == ([[1], [-2]], "int32", "fractal_nz")


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_numbers_are_acls(tmp_path: Path, dtype: str) -> None:
    numbers = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6}
    numbers |= {"int64": 9, "float64": 11, "bool": 12, "bfloat16": 27}
    assert dtype_number(dtype) == numbers[dtype]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no line $End=1"),
        (b"\x93NUMPY\x01\0", "has no line $End=1"),
        (HEAD + b"dtype=3\nformat=2\ndims=1\n", "has no line $End=1"),
        (HEAD + b"dtype=3\nformat=2\ndims=1\n$End=1\n12345", "are 4 bytes, got 5 after $End=1"),
        (HEAD + b"dtype=3\nformat=2\ndims=1\n$End=1\n123", "are 4 bytes, got 3 after $End=1"),
        (HEAD + b"dtype=3\nformat=2\ndims=-1\n$End=1\n", "dims are not numbers >= 0, got '-1'"),
        (HEAD + b"dtype=3\nformat=2\ndims=a\n$End=1\n", "dims are not numbers >= 0, got 'a'"),
        (HEAD + b"dtype=3\nformat=2\n$End=1\n1234", "has no line dims="),
        (HEAD + b"format=2\ndims=1\n$End=1\n1234", "has no line dtype="),
        (HEAD + b"dtype=int\nformat=2\ndims=1\n$End=1\n", "dtype is not a whole number, got 'int'"),
        (HEAD + b"dtype=5\nformat=2\ndims=1\n$End=1\n1234", "aclDataType 5 cannot be held; use"),
        (HEAD + b"dtype=7\nformat=2\ndims=1\n$End=1\n12", "aclDataType 7 cannot be held; use"),
        (HEAD + b"dtype=3\nformat=9\ndims=1\n$End=1\n1234", "format 9 is unknown"),
        (HEAD + b"no sign\n$End=1\n", "a line before $End=1 is not name=value, got b'no sign'"),
        (HEAD + b"\xff\xfe=1\n$End=1\n", "a line before $End=1 is not name=value"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_bin(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_files_that_cannot_be_written_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bfloat16 is carried as uint16, got an array of float32"):
        write_bin(tmp_path / "x.bin", np.zeros(1, np.float32), "bfloat16")
    with pytest.raises(ValueError, match="format 'nz' is unknown"):
        write_bin(tmp_path / "x.bin", np.zeros(1, np.float32), form="nz")
    assert not (tmp_path / "x.bin").exists()
