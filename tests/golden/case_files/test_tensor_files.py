"""Tensors from .bin, .npy and .npz, never unpickled."""

from __future__ import annotations

import pickle
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.case_files.bin_file import write_bin
from golden.case_files.tensor_files import read_outputs, read_tensor


def test_orders_of_bytes_and_of_dims(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.save(tmp_path / "x.npy", np.asfortranarray(array.astype(">i4")))
    again, dtype = read_tensor(tmp_path / "x.npy")
    assert (dtype, again.tolist(), again.dtype.isnative) == ("int32", array.tolist(), True)
    assert again.flags.c_contiguous


def test_bfloat16_as_ml_dtypes_saves_it(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    np.save(tmp_path / "x.npy", np.array([1, -2], ml_dtypes.bfloat16))
    again, dtype = read_tensor(tmp_path / "x.npy")
    assert (dtype, again.tolist()) == ("bfloat16", [0x3F80, 0xC000])


class Bomb:
    """Would write a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_nothing_is_unpickled(tmp_path: Path, ending: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / f"x.{ending}"
    content = np.array([Bomb(mark)], object)
    if ending == "npy":
        np.save(path, content)
    else:
        np.savez(path, a=content)
    with pytest.raises(ValueError, match="holds Python objects, which are not read"):
        read_outputs(path)
    path.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(ValueError, match=str(path)):
        read_outputs(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"", "a tensor's file ends in .bin or .npy"),
        ("x.bin", b"", "is empty"),
        ("x.npy", b"", "is empty"),
        ("x.npz", b"", "is empty"),
        ("x.pt", b"", "is empty"),
        ("x.npy", b'{"a": 1}\n', "is not a .npy file: it begins with b'{\"a\": 1}\\n'"),
        ("x.npy", b"PK\x03\x04-", "is not a .npy file: it begins like a .npz or .pt"),
        ("x.npy", b"\x93NUMPY\x01\x00v\x00{", "is cut short in its header"),
        ("x.npz", b"no archive", "is not a .npz file: it begins with b'no archive'"),
        ("x.npz", b"\x93NUMPY\x01\x00", "is not a .npz file: it begins like a .npy"),
        (
            "x.npz",
            b"PK\x03\x04-\x00\x00",
            "is cut short: the list at the end of a zip archive is mi",
        ),
        (
            "x.pt",
            b"PK\x03\x04-\x00\x00",
            "is cut short: the list at the end of a zip archive is mis",
        ),
        ("x.pt", b"no tensors", "is not a .pt file: it begins with b'no tensors'"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_outputs(tmp_path / name)
    assert f"{name}: {message}" in str(caught.value)


def test_an_entry_of_another_kind_is_named(tmp_path: Path) -> None:
    archive(tmp_path / "x.npz", b"hello")
    with pytest.raises(ValueError, match=r"x.npz: entry a.npy is not a .npy file: it begins with"):
        read_outputs(tmp_path / "x.npz")


@pytest.mark.parametrize("ending", ["npz", "pt"])
def test_an_archive_whose_list_stands_on_a_second_disk(tmp_path: Path, ending: str) -> None:
    archive(tmp_path / "x.npz", header("(1,)") + b"1")
    data = (tmp_path / "x.npz").read_bytes()
    end = data.index(b"PK\x05\x06")
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 2)
    (tmp_path / f"x.{ending}").write_bytes(data[:end] + locator + data[end:])
    with pytest.raises(ValueError, match=rf"x.{ending}: zipfiles that span multiple disks are not"):
        read_outputs(tmp_path / f"x.{ending}")


_SAVE = "save its tensors with torch.save"
_OBJECTS = "holds Python objects, which are not read: save tensors of numbers alone"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"a": Bomb(Path("mark"))}, 2), _OBJECTS),
        (
            pickle.dumps({"a": Bomb(Path("mark"))}, 4),
            f"is a pickle of a protocol above 2, which is not read: {_SAVE}",
        ),
        (b"\x80\x02\xff\xff", "is damaged (Unsupported operand 255)"),
        (
            b"\x80\x02X\x02\x00\x00\x00\xff\xfe.",
            "is damaged ('utf-8' codec can't decode byte 0xff in position 0: invalid start byte)",
        ),
        (b"\x80\x02", "is cut short in its pickle"),
    ],
    ids=["objects", "protocol", "operand", "text", "short"],
)
def test_a_pt_that_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_outputs(path)
    assert str(caught.value) == f"{path}: {message}"
    # torch's archives hold the same pickle.
    torch.save(torch.ones(3), tmp_path / "right.pt")
    right = zipfile.ZipFile(tmp_path / "right.pt")
    with right, zipfile.ZipFile(path, "w") as changed:
        for entry in right.namelist():
            changed.writestr(entry, content if entry.endswith("data.pkl") else right.read(entry))
    with pytest.raises(ValueError) as caught:
        read_outputs(path)
    assert str(caught.value) == f"{path}: {message}"
    assert not (tmp_path / "mark").exists()


def test_a_pt_whose_archive_torch_does_not_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    torch.save(torch.ones(3), path)
    data = path.read_bytes()
    path.write_bytes(data[:4] + data[4:].replace(b"PK\x03\x04", b"PK\x03\x05"))
    with pytest.raises(ValueError) as caught:
        read_outputs(path)
    assert str(caught.value).startswith(f"{path}: is damaged (PytorchStreamReader failed ")
    assert "miniz" not in str(caught.value)


def test_a_torchscript_archive_says_so(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.ReLU()), path)
    with pytest.raises(ValueError) as caught:
        read_outputs(path)
    said = "is a TorchScript archive (torch.jit.save), which is not read"
    assert str(caught.value) == f"{path}: {said}: {_SAVE}"


def header(shape: str, descr: str = "'|i1'") -> bytes:
    """The beginning of a .npy that claims a shape."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def archive(path: Path, content: bytes, *, at: int = 0, byte: int = 0, way: int = 0) -> None:
    """An .npz of one entry, with a byte replaced in its local and its central header."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", content)
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\x01\x02")
    if at:
        data[at] = data[central + at + 2] = byte
    if way:
        data[35] ^= way
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("ending", "change", "message"),
    [
        (
            "npy",
            {"content": header("(99999999999, 4)") + b"1"},
            "is 399999999996 bytes, 1 are ther",
        ),
        (
            "npz",
            {"content": header("(99999999999, 4)") + b"1"},
            "is 399999999996 bytes, 1 are ther",
        ),
        (
            "npy",
            {"content": header("(__import__('os'),)")},
            "its header is not one that numpy writes",
        ),
        ("npz", {"content": header("(8,)") + b"12345678", "way": 255}, "x.npz: "),
        ("npz", {"content": header("(1,)") + b"1", "at": 6, "byte": 1}, "it is encrypted"),
        (
            "npz",
            {"content": header("(1,)") + b"1", "at": 8, "byte": 77},
            "compression method is not",
        ),
    ],
    ids=["huge", "huge entry", "code", "corrupt", "encrypted", "compression"],
)
def test_files_that_numpy_stumbles_over(
    tmp_path: Path, ending: str, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        path.write_bytes(change["content"])
    else:
        archive(path, **change)
    with pytest.raises(ValueError) as caught:
        read_outputs(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_elements_in_another_order_are_no_nd_tensor(tmp_path: Path) -> None:
    write_bin(tmp_path / "x.bin", np.zeros((16, 16), np.float16), form="fractal_nz")
    with pytest.raises(ValueError, match=r"x.bin: its elements lie in format fractal_nz, expected"):
        read_outputs(tmp_path / "x.bin")
    assert read_tensor(tmp_path / "x.bin", form="fractal_nz")[1] == "float16"


def test_dtypes_that_are_none_of_ours(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(2, np.complex64))
    with pytest.raises(ValueError, match=r"x.npy: an array of complex64 is not one of float16"):
        read_tensor(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", a=np.zeros(1, np.int8), b=np.zeros(1, np.float16))
    with pytest.raises(ValueError, match="its tensors are of several dtypes"):
        read_outputs(tmp_path / "x.npz")
    np.savez(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="holds no tensor"):
        read_outputs(tmp_path / "none.npz")


def test_ranks_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    tensors = {f"rank{r}/output": np.array([r], np.int8) for r in (10, 9, 0, 1)}
    np.savez(tmp_path / "x.npz", **tensors)
    outputs, _ = read_outputs(tmp_path / "x.npz")
    assert [int(output[0]) for output in outputs.values()] == [0, 1, 9, 10]
