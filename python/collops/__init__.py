"""Collective operators for uneven batches: AllGatherV, ReduceScatterV and others.

Importing this package loads only this file. The module of a name is imported when the name is first
used, so golden and the parameter structs work where the C++ core cannot be loaded.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collops import testing as testing
    from collops import trace as trace
    from collops.atb.collective_params import AllGatherParam as AllGatherParam
    from collops.atb.collective_params import AllGatherVParam as AllGatherVParam
    from collops.atb.collective_params import AllReduceParam as AllReduceParam
    from collops.atb.collective_params import AllToAllParam as AllToAllParam
    from collops.atb.collective_params import AllToAllVParam as AllToAllVParam
    from collops.atb.collective_params import AllToAllVV2Param as AllToAllVV2Param
    from collops.atb.collective_params import BroadcastParam as BroadcastParam
    from collops.atb.collective_params import RecvParam as RecvParam
    from collops.atb.collective_params import ReduceScatterParam as ReduceScatterParam
    from collops.atb.collective_params import ReduceScatterVParam as ReduceScatterVParam
    from collops.atb.collective_params import SendParam as SendParam
    from collops.atb.linear_parallel import LinearParallelParam as LinearParallelParam
    from collops.atb.linear_parallel import MoeInfo as MoeInfo
    from collops.atb.linear_parallel import ParallelType as ParallelType
    from collops.atb.linear_parallel import TwoDimTPInfo as TwoDimTPInfo
    from collops.atb.operation import Operation as Operation
    from collops.atb.param import COMM_MULTI_PROCESS as COMM_MULTI_PROCESS
    from collops.atb.param import COMM_MULTI_THREAD as COMM_MULTI_THREAD
    from collops.atb.param import COMM_UNDEFINED as COMM_UNDEFINED
    from collops.atb.param import CommMode as CommMode
    from collops.atb.torch_atb import Prof as Prof
    from collops.atb.torch_atb import set_buffer_size as set_buffer_size
    from collops.collectives.communicator import Communicator as Communicator
    from collops.collectives.cuda_arrays import cuda_empty as cuda_empty
    from collops.collectives.cuda_arrays import cuda_empty_cache as cuda_empty_cache
    from collops.collectives.messages import RecvFrom as RecvFrom
    from collops.collectives.messages import SendTo as SendTo
    from collops.collectives.moe import MoeHandle as MoeHandle
    from collops.collectives.started import StartedCall as StartedCall
    from collops.cuda_array import CudaArray as CudaArray
    from collops.errors import AbortedError as AbortedError
    from collops.errors import ArgumentError as ArgumentError
    from collops.errors import Error as Error
    from collops.errors import ErrorCode as ErrorCode
    from collops.errors import OutOfMemoryError as OutOfMemoryError
    from collops.errors import PeerLostError as PeerLostError
    from collops.errors import RankMismatchError as RankMismatchError
    from collops.errors import RankTimeoutError as RankTimeoutError
    from collops.errors import SystemFailureError as SystemFailureError
    from collops.errors import UnsupportedError as UnsupportedError
    from collops.launch.init import init as init
    from collops.tensors import TensorDesc as TensorDesc
    from collops.tensors import with_format as with_format

    __version__: str

# The module of each public name.
_NAMES = {
    "atb.collective_params": "AllGatherParam AllGatherVParam AllReduceParam AllToAllParam "
    "AllToAllVParam AllToAllVV2Param BroadcastParam RecvParam ReduceScatterParam "
    "ReduceScatterVParam SendParam",
    "atb.linear_parallel": "LinearParallelParam MoeInfo ParallelType TwoDimTPInfo",
    "atb.operation": "Operation",
    "atb.param": "COMM_MULTI_PROCESS COMM_MULTI_THREAD COMM_UNDEFINED CommMode",
    "atb.torch_atb": "Prof set_buffer_size",
    "collectives.communicator": "Communicator",
    "collectives.cuda_arrays": "cuda_empty cuda_empty_cache",
    "collectives.messages": "RecvFrom SendTo",
    "collectives.moe": "MoeHandle",
    "collectives.started": "StartedCall",
    "cuda_array": "CudaArray",
    "errors": "AbortedError ArgumentError Error ErrorCode OutOfMemoryError PeerLostError "
    "RankMismatchError RankTimeoutError SystemFailureError UnsupportedError",
    "launch.init": "init",
    "tensors": "TensorDesc with_format",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_SUBMODULES = ("golden", "testing", "trace")

__all__ = sorted([*_MODULES, *_SUBMODULES, "__version__"])


_ON_COMM = "with comm = collops.init()"
_NOT_COMMUNICATING = "collops has only those operators of ATB that communicate: docs/from_atb.md"
# Names of torch.distributed and torch_atb, and what to write instead.
_NAMES_OF_OTHERS = {
    "Builder": _NOT_COMMUNICATING,
    "GatherParam": _NOT_COMMUNICATING,
    "ReduceOp": 'pass a word as op, such as op="sum", or torch.distributed\'s member',
    "ReduceParam": _NOT_COMMUNICATING,
    "destroy_process_group": f"did you mean comm.close, {_ON_COMM}?",
    "get_rank": f"did you mean comm.rank, {_ON_COMM}?",
    "get_world_size": f"did you mean comm.size, {_ON_COMM}?",
    "init_process_group": "did you mean collops.init?",
    "new_group": f"did you mean comm.split, {_ON_COMM}?",
    "run_ranks": "did you mean collops.testing.run_ranks?",
    "jax": "import collops.jax first",
    "torch": "import collops.torch first",
}


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("collops")
    except metadata.PackageNotFoundError:
        return "0+unknown"  # a checkout is on the path, but the package is not installed


def _unknown(name: str) -> str:
    """The message for a name that the package does not have."""
    from collops.errors import nearest

    text = f"module 'collops' has no attribute {name!r}"
    if name.startswith("_"):  # what tools look for
        return text
    if name in _NAMES_OF_OTHERS:
        return f"{text}; {_NAMES_OF_OTHERS[name]}"
    methods = dir(__getattr__("Communicator"))
    known = {word.lower(): word for word in (*methods, *__all__)}
    if near := nearest(name.lower(), known, 0.8):
        word = known[near]
        where = f"comm.{word}, {_ON_COMM}" if word in methods else f"collops.{word}"
        return f"{text}; did you mean {where}?"
    return f"{text}; {_NOT_COMMUNICATING}" if name.endswith("Param") else text


def __getattr__(name: str) -> Any:
    value: Any
    if name in _MODULES:
        value = getattr(importlib.import_module(f"collops.{_MODULES[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"collops.{name}")
    elif name == "__version__":
        value = _version()
    else:
        raise AttributeError(_unknown(name), name=name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
