"""The two-phase operation of the ATB level."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from collops.atb.param import Param
from collops.core import core
from collops.errors import Error, ErrorCode, missing_attribute, raise_status, status_of
from collops.tensors import TensorDesc

# ATB's first phase, and names of its getters.
_WORDS_OF_OTHERS = {
    "getinputnum": "input_num",
    "getname": "name",
    "getoutputnum": "output_num",
    "inputnum": "input_num",
    "outputnum": "output_num",
    "setup": "get_workspace_size",
}


class Operation:
    """One operator of one rank, configured by a parameter struct and run in two phases.

    get_workspace_size() checks and plans a call and is local; execute() moves the data together
    with the other ranks. forward() does both and allocates the outputs.

    Args:
        param: the operator's struct, such as AllGatherVParam.
        engine: how LinearParallel runs, the same on every rank: "windows" computes while rows and
            sums move, "pipeline" runs the steps in sequence, "local" is for one rank, and "streams"
            is the only engine for tensors on a device. None: the first that can run, in the order
            local, windows (unless COLLOPS_FUSED=0), pipeline, streams. Results do not depend on it.
            get_workspace_size() refuses an engine that cannot run the call.
        averages: LinearParallel divides its sums, in float32, by the number of ranks that add up,
            before it adds the residual; the same on every rank.

    Raises:
        ArgumentError: the struct is wrong, or the engine is unknown. Creation is local: the other
            ranks do not learn of the error.
        UnsupportedError: the struct's backend cannot run here.

    Source of the semantics: ``atb::Operation``; AllGatherV as MPI_Allgatherv, ReduceScatterV as
    MPI_Reduce_scatter with displacements.

    Example:
        >>> import collops, numpy as np
        >>> from collops.testing import run_ranks
        >>> def gather(rank):
        ...     param = collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm")
        ...     x = np.full((rank + 1, 2), rank, np.float32)
        ...     counts, displs = np.array([2, 4]), np.array([0, 2])
        ...     y = np.empty(3, np.float16)
        ...     [out] = collops.Operation(param).forward([x, counts[[rank]], counts, displs, y])
        ...     return out.tolist()
        >>> run_ranks(gather, 2)[0]
        [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self, param: Param, *, engine: str | None = None, averages: bool = False) -> None:
        self._core = core().Operation(*_core_arguments(param), _engine_name(engine), bool(averages))
        self._packed: Any = None

    if not TYPE_CHECKING:  # which would take every name for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute("an operation", name, dir(Operation), "op", _WORDS_OF_OTHERS)

    @property
    def name(self) -> str:
        """The operator's name, such as ``"AllGatherV"``."""
        return str(self._core.name)

    @property
    def engine(self) -> str:
        """The engine of the call that was planned last, such as ``"streams"``, of LinearParallel.

        Empty before the first plan, and for other operators.
        """
        return str(self._core.engine)

    @property
    def input_num(self) -> int:
        """The number of input tensors; torch_atb's spelling."""
        return int(self._core.num_inputs)

    @property
    def output_num(self) -> int:
        """The number of output tensors; torch_atb's spelling."""
        return int(self._core.num_outputs)

    def __repr__(self) -> str:
        tensors = f"{_count(self.input_num, 'input')}, {_count(self.output_num, 'output')}"
        return f"<collops.Operation {self.name}: {tensors}>"

    def update(self, param: Param) -> None:
        """Replaces the operation's struct by another one of the same class; local.

        An equal struct changes nothing and keeps the plans. Another struct drops the plans; if its
        `comm_domain` is in use, the communicator is kept, without a new first contact.

        Args:
            param: a struct of the class that the operation was made with.

        Raises:
            ArgumentError: the struct is wrong or of another class; the operation stays as it was.
            UnsupportedError: its backend cannot run here; the operation stays as it was.

        Source of the semantics: ``atb::UpdateOperationParam``.

        Example:
            >>> import collops
            >>> param = collops.AllGatherVParam(rank=0, rank_size=2, backend="shm")
            >>> op = collops.Operation(param)
            >>> param.comm_domain = "tp"
            >>> op.update(param)
        """
        self._core.update(*_core_arguments(param))

    def infer_shape(self, ins: Sequence[Any]) -> list[TensorDesc]:
        """Describes the outputs for these inputs; local.

        Args:
            ins: tensors or TensorDesc, in the operator's order.

        Returns:
            One TensorDesc per output.

        Raises:
            ArgumentError: the inputs do not fit, with ATB's code.
        """
        return list(self._core.infer_shape(ins))

    def get_workspace_size(self, ins: Sequence[Any], outs: Sequence[Any]) -> int:
        """Checks and plans a call, and copies the counts; local.

        Args:
            ins: the input tensors, in the operator's order.
            outs: the output tensors.

        Returns:
            Bytes of scratch memory that execute() needs; may be 0.

        Raises:
            ArgumentError: a tensor or a count is wrong, with ATB's code.
        """
        return int(self._core.get_workspace_size(ins, outs))

    def execute(
        self, ins: Sequence[Any], outs: Sequence[Any], workspace: Any = None, stream: Any = None
    ) -> None:
        """Runs a planned call together with the other ranks.

        On the CPU the call is complete on return. On a device it is queued on a stream.

        Args:
            ins: the input tensors, with the shapes, dtypes and counts of a planned call.
            outs: the output tensors.
            workspace: scratch memory of at least get_workspace_size() bytes, None if that was 0.
            stream: for a device: a stream of torch or CuPy, an object with ``__cuda_stream__``, or
                a number (on CUDA 0 is the legacy default stream). None: the current stream of the
                library that made the first tensor on a device, torch or CuPy; for other tensors
                on CUDA the legacy default stream. The CPU has no streams.

        Raises:
            ArgumentError: the call fails its own checks; the other ranks get its message.
            RankMismatchError: the ranks disagree, or one of them refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.
        """
        self._core.execute(ins, outs, workspace, stream)

    def forward(self, ins: Sequence[Any]) -> list[Any]:
        """Allocates the outputs and runs both phases.

        Args:
            ins: the input tensors, in the operator's order.

        Returns:
            The outputs, of the first input's kind: torch for torch, CuPy for CuPy, numpy for all
            others on the CPU.

        Raises:
            Error: as get_workspace_size() and execute(); the other ranks get its message.
        """
        return list(self._core.forward(ins))

    def prepack(self, weight: Any) -> None:
        """Packs a constant weight once for all calls of LinearParallel; local.

        Calls that pass this tensor (the same memory, shape and dtype) use the packed copy, which
        is kept until another weight is packed; update() keeps it unless `trans_weight` changes.
        Results do not depend on it. If the weight's values change, pack it again. A weight of int8
        is packed for an x of int8; with any other x the tensor itself is read.

        Args:
            weight: the weight as execute() takes it; it is kept alive.

        Raises:
            ArgumentError: the weight is wrong, with ATB's code, or the operator has no weight.

        Example:
            >>> import collops, numpy as np
            >>> param = collops.LinearParallelParam(rank=0, rank_size=2, backend="shm")
            >>> collops.Operation(param).prepack(np.ones((8, 4), np.float32))
        """
        self._core.prepack(weight)
        self._packed = weight

    def _refuse(self, error: Exception) -> None:
        try:
            self._core.refuse(*status_of(error))
        except Error:
            return  # the communicator has ended; the caller raises the first error


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _core_arguments(param: Param) -> tuple[str, str, int]:
    if not isinstance(param, Param):
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"Operation: a parameter struct such as AllGatherVParam is needed, got "
            f"{type(param).__name__}",
        )
    return type(param).__name__, param._raw_json(), _handle(param.hccl_comm)


def _engine_name(engine: Any) -> str:
    """The engine's name for the core; empty for None."""
    if engine is not None and not isinstance(engine, str):
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f'Operation: engine must be a name such as "pipeline" or None, got '
            f"{type(engine).__name__}",
        )
    return engine or ""


def _handle(hccl_comm: Any) -> int:
    if hccl_comm is None:
        return 0
    try:
        return operator.index(getattr(hccl_comm, "handle", hccl_comm))
    except TypeError:
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"Operation: hccl_comm must be a communicator or its handle, a whole number, got "
            f"{hccl_comm!r}",
        )
