"""Uneven collectives, AllGatherV and ReduceScatterV, the same on CPUs, GPUs and NPUs.

Importing this package loads nothing but this file: a name's module is imported when it is first
used, so what needs no core (golden, the parameter structs) works where the core cannot load.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collops import testing
    from collops.communicator import Communicator
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
    from collops.even_params import (
        AllGatherParam,
        AllReduceParam,
        AllToAllParam,
        BroadcastParam,
        ReduceScatterParam,
    )
    from collops.exchange_params import AllToAllVParam, AllToAllVV2Param
    from collops.job import init
    from collops.linear_parallel_param import (
        LinearParallelParam,
        MoeInfo,
        ParallelType,
        TwoDimTPInfo,
    )
    from collops.message_params import RecvParam, SendParam
    from collops.messages import RecvFrom, SendTo
    from collops.operation import Operation
    from collops.params import (
        COMM_MULTI_PROCESS,
        COMM_MULTI_THREAD,
        COMM_UNDEFINED,
        AllGatherVParam,
        CommMode,
        ReduceScatterVParam,
    )
    from collops.started import StartedCall
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
    "COMM_MULTI_PROCESS": "params",
    "COMM_MULTI_THREAD": "params",
    "COMM_UNDEFINED": "params",
    "AbortedError": "errors",
    "AllGatherParam": "even_params",
    "AllGatherVParam": "params",
    "AllReduceParam": "even_params",
    "AllToAllParam": "even_params",
    "AllToAllVParam": "exchange_params",
    "AllToAllVV2Param": "exchange_params",
    "ArgumentError": "errors",
    "BroadcastParam": "even_params",
    "CommMode": "params",
    "Communicator": "communicator",
    "Error": "errors",
    "ErrorCode": "errors",
    "LinearParallelParam": "linear_parallel_param",
    "MoeInfo": "linear_parallel_param",
    "Operation": "operation",
    "ParallelType": "linear_parallel_param",
    "PeerLostError": "errors",
    "RankMismatchError": "errors",
    "RankTimeoutError": "errors",
    "RecvFrom": "messages",
    "RecvParam": "message_params",
    "ReduceScatterParam": "even_params",
    "ReduceScatterVParam": "params",
    "SendParam": "message_params",
    "SendTo": "messages",
    "StartedCall": "started",
    "TensorDesc": "tensors",
    "TwoDimTPInfo": "linear_parallel_param",
    "UnsupportedError": "errors",
    "init": "job",
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
