"""Arrays of any shape and strides: the core sees what numpy sees, and moves what numpy would."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import collops
from collops.core import core

MOST_SIZES_SHOWN = 8
DTYPES = ("bool", "int8", "int16", "float16", "float32", "int64", "complex128", ">f4", "S3")


class Foreign:
    """An array that only speaks DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **words: Any) -> Any:
        return self._array.__dlpack__(**words)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@st.composite
def arrays(draw: st.DrawFn, most_dims: int = 10, dtypes: tuple[str, ...] = DTYPES) -> Any:
    """Steps of both signs, gaps, dims in any order, and dims that repeat the same memory."""
    dims = draw(st.integers(0, most_dims))
    sizes = [draw(st.integers(0, 3)) for _ in range(dims)]
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1, -2])) for _ in range(dims)]
    starts = [draw(st.sampled_from([0, 0, 1])) for _ in range(dims)]
    full = [
        start + size * abs(step) for size, step, start in zip(sizes, steps, starts, strict=True)
    ]
    count = int(np.prod(full, dtype=np.int64))
    if count > 1 << 16:
        dims, full, steps, starts = 1, [7], [1], [0]
        count = 7
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    memory = np.arange(count * dtype.itemsize, dtype=np.uint64).astype(np.uint8) & 1
    whole = memory.view(dtype).reshape(full)
    # With the dots an array without dims stays one.
    array = whole[(*(slice(start, None) for start in starts), ...)]
    array = array[(*(slice(None, None, step) for step in steps), ...)]
    array = array.transpose(draw(st.permutations(range(dims))))
    if draw(st.booleans()) and dims < most_dims:
        array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
    return array


def shown(shape: tuple[int, ...]) -> str:
    sizes = [str(size) for size in shape[:MOST_SIZES_SHOWN]]
    return f"[{', '.join([*sizes, *(['...'] if len(shape) > MOST_SIZES_SHOWN else [])])}]"


@given(arrays())
def test_an_array_is_described_as_numpy_sees_it(array: Any) -> None:
    seen = core().describe(array)
    assert seen["shape"] == shown(array.shape)
    assert seen["numel"] == array.size
    assert seen["contiguous"] == array.flags.c_contiguous
    assert seen["read_only"] == (not array.flags.writeable)
    assert seen["foreign_endian"] == (array.dtype.byteorder == ">")
    if array.size:
        assert seen["address"] == array.ctypes.data


@given(arrays(most_dims=8, dtypes=("int8", "float32", "int64", "complex128")))
def test_what_comes_by_dlpack_is_described_as_numpy_sees_it(array: Any) -> None:
    try:
        array.__dlpack__()
    except BufferError:
        return  # numpy does not hand over what cannot be written
    seen = core().describe(Foreign(array))
    assert (seen["shape"], seen["numel"]) == (shown(array.shape), array.size)
    assert seen["contiguous"] == array.flags.c_contiguous
    if array.size:
        assert seen["address"] == array.ctypes.data


@given(array=arrays(most_dims=8, dtypes=("int8", "float32", "int64")), data=st.data())
def test_the_plain_level_takes_what_it_says_it_takes(array: Any, data: st.DataObject) -> None:
    """A call gives numpy's result, or an error that says which copy to make; x never changes."""
    comm = collops.init(0, 1, comm_domain="strides", job_id="fuzz-strides")
    before = array.copy()
    dim = data.draw(st.integers(-1, max(0, array.ndim - 1)))
    try:
        gathered = comm.all_gatherv(array, dim=dim)
    except collops.Error as error:
        assert error.code in (1, 8, 9, 14, 16), error
    else:
        assert gathered.dtype == array.dtype
        assert np.array_equal(gathered, before)
    assert np.array_equal(array, before)
