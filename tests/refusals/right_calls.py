"""A right call of every operator on each of two ranks, and the words in which rows spoil it."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import collops

Tensors = list[Any]


def f4(*shape: int) -> Any:
    """Numbers that differ in every position."""
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def desc(*shape: int, dtype: str = "float32", format: str = "nd") -> collops.TensorDesc:
    return collops.TensorDesc(shape, dtype, format)


def read_only(array: Any) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


def strided(array: Any) -> Any:
    """The same numbers, with a gap behind each."""
    return array.repeat(2, -1)[..., ::2]


def swapped(array: Any) -> Any:
    """The same numbers in the other byte order."""
    return array.astype(array.dtype.newbyteorder())


@dataclass(frozen=True)
class On:
    """A tensor that is said to be on that device, for the C++ program alone: nobody reads it."""

    device: str
    tensor: Any


def dlpack(give: Callable[[], Any], device: Any = (1, 0)) -> Any:
    """An object whose __dlpack__ gives or raises that."""
    own = {"__dlpack__": lambda self, **_: give(), "__dlpack_device__": lambda self: device}
    return type("Exporter", (), own)()


class DLTensor(ctypes.Structure):
    """DLPack's tensor with a version, as its header declares it."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("dims", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )


LIVING: list[Any] = []  # what capsules point to


def capsule(**changes: Any) -> Any:
    """DLPack's capsule of 6 float32, but for the changes."""
    memory, shape = (ctypes.c_float * 6)(), (ctypes.c_int64 * 1)(6)
    words = {"major": 1, "device": (1, 0), "dims": 1, "code": 2, "bits": 32, "lanes": 1, **changes}
    tensor = DLTensor(data=ctypes.addressof(memory), shape=shape, **words)
    LIVING.append((memory, shape, tensor))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return make(ctypes.addressof(tensor), b"dltensor_versioned", None)


class Raising:
    """A stream that cannot say where it is."""

    def __cuda_stream__(self) -> Any:
        raise LookupError("no such stream")


def with_experts(values: dict[str, Any], kind: int = 5, **grid: int) -> None:
    """Makes a call of LinearParallel one with two experts on each of two ranks."""
    values["type"] = kind
    values["moe_info"] = collops.MoeInfo(**{"local_expert_nums": 2, "ep_size": 2, **grid})
    table, most = np.ones((2, 4), np.int64), np.empty(6, np.int32)
    values["ins"] = [f4(4, 4), f4(2, 5, 4), f4(5), table, most]


def of_int8(values: dict[str, Any], quant_type: int = 1, x: str = "int8") -> None:
    """Makes a call of LinearParallel a quantised one, of type 0."""
    values.update(type=0, quant_type=quant_type, out_data_type=1 if x == "int8" else -1)
    scale = np.ones(5, np.int64 if x == "int8" else x)
    bias = np.ones(5, np.int32 if x == "int8" else x)
    weight = np.ones((5, 4), np.int8)
    values["ins"] = [np.ones((6, 4), x), weight, bias, scale, np.ones(5, "f2")]


def int8_sums(values: dict[str, Any], quant_type: int = 1, columns: int = 16) -> None:
    """Makes a call of AllReduce a quantised one."""
    values.update(quant_type=quant_type, out_data_type=1, out=np.empty((4, columns), "f2"))
    scale = np.ones(1 if quant_type == 1 else columns, "f2")
    values["ins"] = [np.ones((4, columns), "i1"), scale, np.ones(1, "f2")]


def attempt(call: Callable[..., Any], *args: Any) -> None:
    """A call that is refused, before the one that counts."""
    with contextlib.suppress(collops.Error):
        call(*args)


WORDS: dict[str, Any] = {
    "attempt": attempt,
    "capsule": capsule,
    "dlpack": dlpack,
    "Raising": Raising,
    "np": np,
    "collops": collops,
    "f4": f4,
    "ints": ints,
    "desc": desc,
    "read_only": read_only,
    "strided": strided,
    "swapped": swapped,
    "on": On,
    "grid": collops.TwoDimTPInfo,
    "with_format": collops.with_format,
    "int8_sums": int8_sums,
    "of_int8": of_int8,
    "with_experts": with_experts,
}


@dataclass(frozen=True)
class Right:
    """A struct, the names of the inputs, and for each rank these, the output and own fields."""

    struct: type[Any]
    names: tuple[str, ...]
    inputs: Callable[[int], Tensors]
    output: Callable[[int], tuple[int, ...]] | None
    fields: Callable[[int], dict[str, Any]] = field(default=lambda rank: {})

    def outputs(self, rank: int) -> Tensors:
        return [] if self.output is None else [np.full(self.output(rank), -1, np.float32)]

    def call(self, rank: int, **more: Any) -> dict[str, Any]:
        """The names of a right call and their values, which the lines of a row change."""
        struct = self.struct()
        fields = {one.name: getattr(struct, one.name) for one in dataclasses.fields(struct)}
        common = {"rank": rank, "rank_size": 2, "backend": "shm", "comm_domain": "refusals"}
        out = dict(zip(["out"], self.outputs(rank), strict=False))
        tensors = dict(zip(self.names, self.inputs(rank), strict=True))
        return {**WORDS, **fields, **common, **self.fields(rank), **tensors, **out, **more}

    def param(self, values: dict[str, Any]) -> Any:
        """The struct. A field that is called as an input, which ATB does not read, is left out."""
        fields = {one.name for one in dataclasses.fields(self.struct)} - set(self.names)
        return self.struct(**{name: values[name] for name in fields if name in values})

    def tensors(self, values: dict[str, Any]) -> tuple[Any, Any]:
        """The inputs and outputs: `ins` and `outs` where a row has made them, else by name."""
        ins = [values[name] for name in self.names if name in values]
        outs = [values["out"]] if "out" in values else []
        return values.get("ins", ins), values.get("outs", outs)


def counted(rank: int, *lists: Any, rows: int) -> Tensors:
    """x [2, 4], lists of counts, and a y of some rows."""
    return [
        f4(2, 4) + 10 * rank,
        *(ints(*numbers) for numbers in lists),
        np.empty(rows, np.float16),
    ]


# The gathers: 3 of 8 elements of rank 0 and 4 of rank 1; the reduction: 6 and 2 of 8. Of the
# exchanges rank 0 sends 2 and 1 of 4 elements, and rank 1 the same.
EXCHANGED: list[dict[str, list[int]]] = [
    {"send_counts": [2, 1], "sdispls": [0, 2], "recv_counts": [2, 2], "rdispls": [0, 2]},
    {"send_counts": [2, 1], "sdispls": [0, 2], "recv_counts": [1, 1], "rdispls": [0, 1]},
]
LINEAR: dict[str, Any] = {
    "type": collops.ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER,
    "two_dim_tp_info": collops.TwoDimTPInfo(ag_dim=2, rs_dim=1),
    "has_residual": True,
}
ONE_X = ("x",)


def of_4_rows(rank: int) -> Tensors:
    return [f4(4, 3) + 100 * rank]


def exchanged(rank: int) -> Tensors:
    lists = [ints(*numbers) for numbers in EXCHANGED[rank].values()]
    return [f4(4) + 10 * rank, *lists, np.empty(4 - 2 * rank, np.int8)]


RIGHT: dict[str, Right] = {
    "AllGatherV": Right(
        collops.AllGatherVParam,
        ("x", "sendCount", "recvCounts", "rdispls", "y"),
        lambda rank: counted(rank, [3 + rank], [3, 4], [0, 4], rows=2),
        lambda rank: (2, 4),
    ),
    "ReduceScatterV": Right(
        collops.ReduceScatterVParam,
        ("x", "sendCounts", "sdispls", "recvCount", "y"),
        lambda rank: counted(rank, [6, 2], [0, 6], [6 - 4 * rank], rows=2 - rank),
        lambda rank: (2 - rank, 4),
    ),
    "AllGather": Right(collops.AllGatherParam, ONE_X, of_4_rows, lambda rank: (2, 4, 3)),
    "ReduceScatter": Right(collops.ReduceScatterParam, ONE_X, of_4_rows, lambda rank: (2, 3)),
    "AllReduce": Right(collops.AllReduceParam, ONE_X, of_4_rows, lambda rank: (4, 3)),
    "Broadcast": Right(collops.BroadcastParam, ONE_X, of_4_rows, None),
    "AllToAll": Right(collops.AllToAllParam, ONE_X, of_4_rows, lambda rank: (4, 3)),
    "AllToAllV": Right(
        collops.AllToAllVParam,
        ONE_X,
        lambda rank: [f4(4) + 10 * rank],
        lambda rank: (1, 4 - 2 * rank),
        lambda rank: {name: [*numbers] for name, numbers in EXCHANGED[rank].items()},
    ),
    "AllToAllVV2": Right(
        collops.AllToAllVV2Param,
        ("x", "sendCounts", "sdispls", "recvCounts", "rdispls", "y"),
        exchanged,
        lambda rank: (1, 4 - 2 * rank),
    ),
    "Send": Right(collops.SendParam, ONE_X, of_4_rows, None, lambda rank: {"dest_rank": 1 - rank}),
    "Recv": Right(
        collops.RecvParam,
        ONE_X,
        of_4_rows,
        lambda rank: (4, 3),
        lambda rank: {"src_rank": 1 - rank},
    ),
    "LinearParallel": Right(
        collops.LinearParallelParam,
        ("x", "weight", "residual"),
        lambda rank: [f4(3, 4) + 100 * rank, f4(5, 4) - rank, np.ones(5, np.float32)],
        lambda rank: (6, 5),
        lambda rank: dict(LINEAR),
    ),
}
# What stands in brackets before a row, besides the operators' own names.
GROUPS: dict[str, tuple[str, ...]] = {
    "all": tuple(RIGHT),
    "V": ("AllGatherV", "ReduceScatterV"),
    "even": ("AllGather", "ReduceScatter", "AllReduce", "Broadcast", "AllToAll"),
    "exchanges": ("AllToAllV", "AllToAllVV2"),
    "messages": ("Send", "Recv"),
    "reductions": ("ReduceScatter", "AllReduce"),
    "G": ("AllGatherV",),
    "S": ("ReduceScatterV",),
    "E": ("AllToAllV",),
    "E2": ("AllToAllVV2",),
    "L": ("LinearParallel",),
}
