"""Uneven collectives, AllGatherV and ReduceScatterV, the same on CPUs, GPUs and NPUs.

Importing this package loads nothing but this file: a name's module is imported when it is first
used, so what needs no core (golden, the parameter structs) works where the core cannot load.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collops import testing
    from collops.atb.all_to_all_v import AllToAllVParam, AllToAllVV2Param
    from collops.atb.even_params import (
        AllGatherParam,
        AllReduceParam,
        AllToAllParam,
        BroadcastParam,
        ReduceScatterParam,
    )
    from collops.atb.linear_parallel import (
        LinearParallelParam,
        MoeInfo,
        ParallelType,
        TwoDimTPInfo,
    )
    from collops.atb.message_params import RecvParam, SendParam
    from collops.atb.operation import Operation
    from collops.atb.param import (
        COMM_MULTI_PROCESS,
        COMM_MULTI_THREAD,
        COMM_UNDEFINED,
        AllGatherVParam,
        CommMode,
        ReduceScatterVParam,
    )
    from collops.collectives.communicator import Communicator
    from collops.collectives.messages import RecvFrom, SendTo
    from collops.collectives.started import StartedCall
    from collops.errors import (
        AbortedError,
        ArgumentError,
        Error,
        ErrorCode,
        PeerLostError,
        RankMismatchError,
        RankTimeoutError,
        UnsupportedError,
    )
    from collops.launch.init import init
    from collops.tensors import TensorDesc, with_format

    __version__: str

__all__ = [
    "COMM_MULTI_PROCESS",
    "COMM_MULTI_THREAD",
    "COMM_UNDEFINED",
    "AbortedError",
    "AllGatherParam",
    "AllGatherVParam",
    "AllReduceParam",
    "AllToAllParam",
    "AllToAllVParam",
    "AllToAllVV2Param",
    "ArgumentError",
    "BroadcastParam",
    "CommMode",
    "Communicator",
    "Error",
    "ErrorCode",
    "LinearParallelParam",
    "MoeInfo",
    "Operation",
    "ParallelType",
    "PeerLostError",
    "RankMismatchError",
    "RankTimeoutError",
    "RecvFrom",
    "RecvParam",
    "ReduceScatterParam",
    "ReduceScatterVParam",
    "SendParam",
    "SendTo",
    "StartedCall",
    "TensorDesc",
    "TwoDimTPInfo",
    "UnsupportedError",
    "__version__",
    "golden",
    "init",
    "testing",
    "with_format",
]

# Where each name lives.
_MODULES = {
    "COMM_MULTI_PROCESS": "atb.param",
    "COMM_MULTI_THREAD": "atb.param",
    "COMM_UNDEFINED": "atb.param",
    "AbortedError": "errors",
    "AllGatherParam": "atb.even_params",
    "AllGatherVParam": "atb.param",
    "AllReduceParam": "atb.even_params",
    "AllToAllParam": "atb.even_params",
    "AllToAllVParam": "atb.all_to_all_v",
    "AllToAllVV2Param": "atb.all_to_all_v",
    "ArgumentError": "errors",
    "BroadcastParam": "atb.even_params",
    "CommMode": "atb.param",
    "Communicator": "collectives.communicator",
    "Error": "errors",
    "ErrorCode": "errors",
    "LinearParallelParam": "atb.linear_parallel",
    "MoeInfo": "atb.linear_parallel",
    "Operation": "atb.operation",
    "ParallelType": "atb.linear_parallel",
    "PeerLostError": "errors",
    "RankMismatchError": "errors",
    "RankTimeoutError": "errors",
    "RecvFrom": "collectives.messages",
    "RecvParam": "atb.message_params",
    "ReduceScatterParam": "atb.even_params",
    "ReduceScatterVParam": "atb.param",
    "SendParam": "atb.message_params",
    "SendTo": "collectives.messages",
    "StartedCall": "collectives.started",
    "TensorDesc": "tensors",
    "TwoDimTPInfo": "atb.linear_parallel",
    "UnsupportedError": "errors",
    "init": "launch.init",
    "with_format": "tensors",
}
_SUBMODULES = ("golden", "testing")


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("collops")
    except metadata.PackageNotFoundError:
        return "0+unknown"  # the sources are on the path, but nothing was installed


def __getattr__(name: str) -> Any:
    value: Any
    if name in _MODULES:
        value = getattr(importlib.import_module(f"collops.{_MODULES[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"collops.{name}")
    elif name == "__version__":
        value = _version()
    else:
        raise AttributeError(f"module 'collops' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
