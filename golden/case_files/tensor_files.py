"""Tensors from files: ATB's .bin, numpy's .npy, torch's .pt, and .npz with one tensor per output.

Nothing is unpickled; a .pt needs torch, and is read with weights_only. A bfloat16 tensor
is uint16 bits, or the two-byte type that ml_dtypes saves.
"""

from __future__ import annotations

import math
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..data.dtypes import Array, name_of
from .bin_file import read_bin

_OUTPUT = re.compile(r"rank(\d+)/output")
# Formats whose elements do not lie in the order of dims.
_BLOCKED = ("nc1hwc0", "nc1hwc0_c04", "ndc1hwc0", "fractal_z", "fractal_z_3d", "fractal_nz")
_TORCH = (".pt", ".pth")
_NPY, _ZIP, _PICKLE = np.lib.format.MAGIC_PREFIX, b"PK", b"\x80"
# What a file of each ending begins with; torch.save once wrote pickles.
_BEGINNINGS = {
    ".bin": (b"",),
    ".npy": (_NPY,),
    ".npz": (_ZIP,),
    **dict.fromkeys(_TORCH, (_ZIP, _PICKLE)),
}
_LIKE = {_NPY: "like a .npy", _ZIP: "like a .npz or .pt", _PICKLE: "like a pickle"}
_SHOWN = 16  # bytes of a file of another kind
_OBJECTS = "holds Python objects, which are not read: save tensors of numbers alone"
_SAVE = "save its tensors with torch.save"
# What torch calls classes and functions that it does not unpickle.
_CLASS = re.compile(r"\bGLOBAL\b|Unsupported class|allowlisted|call reduce|imported to load")
_FRAME = "Unsupported operand 149"  # which begins a pickle of protocol 4 or 5
_MOST_OF_TORCH = 200  # characters of its words
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_tensor(path: Path, *, form: str = "nd") -> tuple[Array, str]:
    """Read the one tensor of a .bin or .npy file, with the name of its dtype.

    Args:
        path: the file.
        form: the format that the elements must lie in; a .bin states its own.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file's name has another ending, it is damaged, its dtype is unknown, or its
            elements lie in another order than that of `form`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(Path(folder) / "x.npy", np.array([0x3F80], np.uint16))
        ...     read_tensor(Path(folder) / "x.npy")
        (array([16256], dtype=uint16), 'bfloat16')
    """
    if path.suffix == ".bin":
        _check_kind(path)
        array, dtype, found = read_bin(path)
        if found in _BLOCKED and found != form:
            raise ValueError(
                f"{path}: its elements lie in format {found}, expected {form}: convert it first"
            )
        return array, dtype
    if path.suffix != ".npy":
        kinds = "a tensor's file ends in .bin or .npy"
        if path.is_dir():
            raise ValueError(f"{path}: is a folder; {kinds}")
        more = ", a file of several tensors in .npz or .pt" if form == "nd" else ""
        raise ValueError(f"{path}: {kinds}{more}")
    _check_kind(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            array = _read_array(file, size)
        except Exception as error:
            raise _damaged(path, error) from None
    return _ours(array, str(path))


def read_outputs(path: Path) -> tuple[dict[str, Array], str]:
    """Read the outputs of a file by name, with the name of their dtype.

    The outputs of a .npz are its entries `rank{r}/output` where it has any (a case that
    `python -m golden generate` wrote), and otherwise all its entries. A .bin or .npy file has one
    output, whose name is empty. A .pt has one tensor, or a dict or list of tensors.

    Raises:
        OSError: the file cannot be read.
        ValueError: as read_tensor, or the .npz is empty or mixes dtypes.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(Path(folder) / "two.npz", a=np.zeros(1, np.int8), b=np.ones(2, np.int8))
        ...     read_outputs(Path(folder) / "two.npz")
        ({'a': array([0], dtype=int8), 'b': array([1, 1], dtype=int8)}, 'int8')
    """
    if path.suffix not in (".npz", *_TORCH):
        array, dtype = read_tensor(path)
        return {"": array}, dtype
    everything = read_entries(path) if path.suffix == ".npz" else _torch_entries(path)
    ranked = sorted((int(m[1]), name) for name in everything if (m := _OUTPUT.fullmatch(name)))
    names = [name for _, name in ranked] or sorted(everything)
    if not names:
        raise ValueError(f"{path}: holds no tensor")
    outputs, dtypes = {}, {}
    for name in names:
        outputs[name.removesuffix("/output")], dtypes[name] = _ours(
            everything[name], f"{path}: {name}"
        )
    if len(set(dtypes.values())) > 1:
        raise ValueError(f"{path}: its tensors are of several dtypes: {dtypes}")
    return outputs, dtypes[names[0]]


def read_entries(path: Path) -> dict[str, Array]:
    """Return all arrays of a .npz file, as they are stored.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or holds Python objects.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(Path(folder) / "one.npz", a=np.zeros(1, np.int8))
        ...     read_entries(Path(folder) / "one.npz")
        {'a': array([0], dtype=int8)}
    """
    _check_kind(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {}
            for entry in archive.infolist():
                with archive.open(entry) as file:
                    if problem := _not_of_kind(file.read(_SHOWN), ".npy"):
                        raise ValueError(f"entry {entry.filename} {problem}")
                    file.seek(0)
                    array = _read_array(file, entry.file_size)
                entries[entry.filename.removesuffix(".npy")] = array
            return entries
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise _damaged(path, error) from None


def _torch_entries(path: Path) -> dict[str, Array]:
    """Return the tensors of a torch.save file by name; a single one has no name."""
    _check_kind(path)  # a file that is not there comes before a torch that is not there
    try:
        import torch
    except ImportError:
        raise ValueError(f"{path}: {_without_torch(path)}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise ValueError(f"{path}: {_why_not_loaded(error)}") from None
    if isinstance(loaded, dict):
        named = {str(name): value for name, value in loaded.items()}
    elif isinstance(loaded, (list, tuple)):
        named = {f"rank{r}/output": value for r, value in enumerate(loaded)}
    else:
        named = {"": loaded}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            what = f"{name!r} is" if name else "it holds"
            raise ValueError(f"{path}: {what} a {type(value).__name__}, expected a tensor")
    return {name: _of_torch(torch, value) for name, value in named.items()}


def _why_not_loaded(error: Exception) -> str:
    """Say in one line why torch.load failed, whose own words are a page of advice."""
    text = str(error)
    if "TorchScript archive" in text:
        return "is a TorchScript archive (torch.jit.save), which is not read: " + _SAVE
    if isinstance(error, EOFError):
        return "is cut short in its pickle"
    if isinstance(error, pickle.UnpicklingError):
        text = text.rpartition("WeightsUnpickler error:")[2].strip()
        if _CLASS.search(text):
            return _OBJECTS
        if _FRAME in text:
            return "is a pickle of a protocol above 2, which is not read: " + _SAVE
    [line, *_] = text.strip().splitlines() or [type(error).__name__]
    return f"is damaged ({line.partition('. This is an internal')[0][:_MOST_OF_TORCH]})"


def _without_torch(path: Path) -> str:
    """Say how to convert a file without changing a bit: numpy has no bfloat16."""
    load = f"import numpy, torch; t = torch.load('{path.name}', 'cpu').detach()"
    save = f"numpy.save('{path.stem}.npy', t.numpy())"
    bits = "t.view(torch.int16).numpy().view('uint16')"
    return (
        "reading it needs torch: pip install torch; or convert a tensor where torch is: "
        f'python -c "{load}; {save}"; of bfloat16, with {bits} in place of t.numpy()'
    )


def _of_torch(torch: Any, tensor: Any) -> Array:
    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bfloat16:
        return np.asarray(plain.view(torch.int16).numpy().view(np.uint16))
    return np.asarray(plain.numpy())


def _read_array(file: IO[bytes], size: int) -> Array:
    """Return the array of a .npy of `size` bytes; a header that claims more bytes is refused."""
    read_header = _HEADERS.get(np.lib.format.read_magic(file))
    if read_header is not None:
        shape, _, dtype = read_header(file)
        need, left = math.prod(shape) * dtype.itemsize, size - file.tell()
        if not dtype.hasobject and need > left:
            raise ValueError(f"shape {list(shape)} of {dtype} is {need} bytes, {left} are there")
    file.seek(0)
    array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _check_kind(path: Path) -> None:
    """Raise ValueError for a file that is empty, of another kind than its name says, or cut short.

    The words of numpy, zipfile and torch for these do not say what the file is.
    """
    with path.open("rb") as file:
        beginning = file.read(_SHOWN)
    if problem := _not_of_kind(beginning, path.suffix):
        raise ValueError(f"{path}: {problem}")
    try:
        whole = not beginning.startswith(_ZIP) or zipfile.is_zipfile(path)
    except zipfile.BadZipFile as error:  # as of an archive on several disks
        raise _damaged(path, error) from None
    if not whole:
        raise ValueError(f"{path}: is cut short: the list at the end of a zip archive is missing")


def _not_of_kind(beginning: bytes, ending: str) -> str:
    """Say what a file is that does not begin as those of this ending; empty if it does."""
    if not beginning:
        return "is empty"
    if beginning.startswith(_BEGINNINGS[ending]):
        return ""
    like = next((_LIKE[known] for known in _LIKE if beginning.startswith(known)), "")
    return f"is not a {ending} file: it begins {like or f'with {beginning!r}'}"


def _damaged(path: Path, error: Exception) -> ValueError:
    """Return a one-line error for a file; numpy and zipfile raise many kinds of exceptions."""
    text = str(error).partition("\n")[0] or type(error).__name__
    if isinstance(error, SyntaxError) or " object at 0x" in text:
        text = "its header is not one that numpy writes"
    if "Object arrays" in text:
        text = _OBJECTS
    if text.startswith("EOF"):
        text = "is cut short in its header"
    if "password required" in text:
        text = "it is encrypted"
    return ValueError(f"{path}: {text}")


def _ours(array: Array, where: str) -> tuple[Array, str]:
    """Return an array in native byte order and the name of its dtype."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None:
        array = array.view(np.uint16)
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    try:
        name = name_of(array)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return array, name
