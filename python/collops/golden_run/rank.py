"""Runs a call on one rank: every step of the operation on its tensors, and a report."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.core import core
from collops.errors import Error
from collops.golden.data import poison
from collops.golden.data.dtypes import DTYPES
from collops.golden_run.backends import memory_of
from collops.golden_run.calls import Argument
from collops.tensors import TensorDesc, numpy_type, with_format

if TYPE_CHECKING:
    from collops.golden.data.dtypes import Array
    from collops.golden_run.backends import DeviceMemory
    from collops.golden_run.calls import Call


# LinearParallel's types that take two tensors on the host, a table of counts and a length.
_WITH_EXPERTS = (5, 6)


@dataclass(frozen=True)
class Placed:
    """An argument in the memory that its backend needs: `tensor` is passed to the operation.

    `device` is the tensor of a device, which `memory` has made; None if the tensor uses the memory
    of the argument's array.
    """

    argument: Argument
    tensor: Any
    device: Any = None
    memory: DeviceMemory | None = None

    def array(self) -> Array:
        """The tensor's current values.

        Raises:
            ValueError: it is only a description.
        """
        if self.memory is not None:
            return self.memory.from_device(self.device)
        argument = self.argument
        if argument.array is None:
            raise ValueError(f"a tensor of {argument.dtype} {list(argument.shape)} has no memory")
        return np.asarray(argument.array)

    def content(self) -> bytes | None:
        """The tensor's current bytes, None for a description."""
        return None if self.argument.array is None else self.array().tobytes()


def place(argument: Argument, memory: DeviceMemory | None = None) -> Placed:
    """An argument as a tensor, in the memory of its array or on this thread's device."""
    if argument.array is None:
        return Placed(argument, _description(argument))
    array: Any = argument.array
    device = None if memory is None else memory.to_device(array, argument.dtype)
    if memory is None and argument.dtype == "bfloat16":
        array = array.view(numpy_type("bfloat16"))
    tensor = array if memory is None else device
    if argument.format != "nd":
        tensor = with_format(tensor, argument.format)
    return Placed(argument, tensor, device, memory)


def poisoned(output: Argument) -> Argument:
    """An output, filled with poison if it can have memory."""
    if output.only_described or output.dtype not in DTYPES or any(d < 0 for d in output.shape):
        return output
    return replace(output, array=poison(output.shape, output.dtype))


def _description(argument: Argument) -> TensorDesc:
    desc = object.__new__(TensorDesc)  # a case may have dtypes that numpy does not know
    for name in ("shape", "dtype", "format"):
        object.__setattr__(desc, name, getattr(argument, name))
    return desc


class Door:
    """Ranks that are threads of one process begin a call on a device together.

    A kernel of one rank waits for those of the others, and a driver may wait for all kernels of the
    process before it gives memory: so every rank has its tensors before any kernel runs.
    """

    def __init__(self) -> None:
        self._barrier: threading.Barrier | None = None

    def close(self, ranks: int) -> None:
        """From now on so many ranks have to come."""
        self._barrier = threading.Barrier(ranks)

    def enter(self) -> None:
        """Waits for the other ranks, or until one has opened the door for good."""
        if self._barrier is None:
            return
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            return

    def open(self) -> None:
        """A rank will not come: nobody waits any more in this call."""
        if self._barrier is not None:
            self._barrier.abort()


# The last operation of every comm_domain, which keeps the communicator open.
_kept: dict[tuple[int, str], Any] = {}
# Closed for every call by whoever runs ranks as threads.
DOOR = Door()


@dataclass(frozen=True)
class Report:
    """How a call ended on one rank.

    `stage` is the step that failed, empty if none did; `code` is the error's, or -1 for a fault
    without a code, which `name` then describes. `outputs` are golden's arrays; `backend` is the
    backend of the operation. `took_part` is false on ranks without a part in a message.
    """

    stage: str = ""
    code: int = 0
    name: str = "NO_ERROR"
    message: str = ""
    outputs: tuple[Array, ...] = ()
    backend: str = ""
    took_part: bool = True


class FaultError(Exception):
    """A rank found a fault, `got`, for which there is no error code."""

    def __init__(self, got: str, message: str) -> None:
        super().__init__(message)
        self.got = got


def execute(call: Call, rank: int) -> Report:
    """Runs a call up to the step that it stops at."""
    steps = _Steps(call, rank)
    try:
        return steps.run()
    except Error as error:
        steps.refuse(error)
        return Report(steps.stage, error.code, error.name, error.message, backend=steps.backend)
    except FaultError as fault:
        steps.refuse(fault)
        return Report(steps.stage, -1, fault.got, str(fault))
    except Exception as error:
        steps.refuse(error)
        return Report(steps.stage, -1, *_words_of(error, steps.stage))
    finally:
        DOOR.open()


def _words_of(error: Exception, stage: str) -> tuple[str, str]:
    """An exception's name and message, with its traceback unless the case's data caused it."""
    if isinstance(error, MemoryError):  # numpy raises a private subclass
        return "MemoryError", str(error) or "no memory is left"
    said, name = str(error), type(error).__name__
    if stage == "data" and isinstance(error, (ValueError, OSError)):
        return name, said
    return name, f"{said}\n{traceback.format_exc().strip()}"


class _Steps:
    """One call on one rank; `stage` is the current step."""

    def __init__(self, call: Call, rank: int) -> None:
        self.call = call
        self.rank = rank
        self.stage = "create"
        self.backend = ""
        self.memory: DeviceMemory | None = None
        self.operation: Any = None

    def run(self) -> Report:
        if not self.call.rank_struct(self.rank):
            return self._stand_by()
        param = getattr(collops, self.call.rank_struct(self.rank)).from_json(
            self.call.param(self.rank)
        )
        self._use(param.backend)
        self.operation = collops.Operation(param)
        if self.call.stops_at == "create":
            return Report()
        _kept[self.rank, param.comm_domain] = self.operation
        self.stage = "data"
        given = self._inputs(param)
        before = [own.content() for own in given]
        ins = [own.tensor for own in given]
        self.stage = "infer_shape"
        described = self.operation.infer_shape(ins)
        if self.call.stops_at == "infer_shape":
            return Report()
        results = [self._placed(poisoned(output)) for output in self._outputs(described)]
        outs = [own.tensor for own in results]
        self.stage = "setup"
        size = self.operation.get_workspace_size(ins, outs)
        if self.call.stops_at == "setup":
            return Report()
        workspace = self._workspace(size)
        self._enter("execute")
        stream = None if self.memory is None else self.memory.stream()
        self.operation.execute(ins, outs, workspace, stream=stream)
        self._check_inputs(given, before)
        results = given[:1] if self.call.shows_input(self.rank) else results
        return Report(outputs=tuple(own.array() for own in results), backend=self.backend)

    def _stand_by(self) -> Report:
        """For a rank that takes no part: joins first contact, and returns its tensor unchanged."""
        fields = json.loads(self.call.param(self.rank))
        backend = fields.get("backend", collops.SendParam().backend)
        self._use(backend)
        if self.call.stops_at or self.call.expected.stage:
            return Report(backend=self.backend, took_part=False)
        self.stage = "data"
        own = self._placed(self.call.inputs(self.rank)[0])
        self._enter("execute")
        domain = fields.get("commDomain", "")
        _kept[self.rank, domain] = collops.init(
            self.rank,
            self.call.rank_size,
            backend=self.backend,
            comm_domain=domain,
            comm_mode=fields.get("commMode", 0),
        )
        return Report(outputs=(own.array(),), backend=self.backend, took_part=False)

    def refuse(self, error: Exception) -> None:
        """Sends a refusal to the ranks that wait in this call."""
        waiting = self.call.stops_at in ("", "execute") and self.stage != "execute"
        if waiting and self.operation is not None:
            self.operation._refuse(error)

    def _use(self, backend: str) -> None:
        """Finds the backend that runs the call, and chooses the device of its communicator."""
        self.backend = core().resolve_backend(self.call.operator, backend)
        self.memory = memory_of(self.backend)
        if self.memory is not None:
            self.memory.choose_device(self.rank)

    def _enter(self, stage: str) -> None:
        """The step in which this rank may wait for the others."""
        if self.memory is not None:
            DOOR.enter()
        self.stage = stage

    def _placed(self, argument: Argument) -> Placed:
        """An argument in the backend's memory."""
        return place(argument, self.memory)

    def _inputs(self, param: Any) -> list[Placed]:
        """The call's inputs; counts and lengths, which come last, are on the host."""
        inputs = self.call.inputs(self.rank)
        of_data = len(inputs)
        if self.call.operator.endswith(("_v", "_v_v2")):
            of_data = 1
        elif getattr(param, "type", None) in _WITH_EXPERTS:
            of_data -= 2
        return [
            self._placed(argument) if at < of_data else place(argument)
            for at, argument in enumerate(inputs)
        ]

    def _workspace(self, size: int) -> Any:
        if size == 0:
            return None
        return self._placed(Argument("uint8", (size,), array=np.empty(size, np.uint8))).tensor

    def _outputs(self, described: Sequence[Any]) -> list[Argument]:
        """The call's outputs; if the call must work, they must be those of infer_shape."""
        if self.call.infers_outputs:
            return [Argument(d.dtype, tuple(d.shape)) for d in described]
        stated = self.call.outputs(self.rank)
        if len(stated) == len(described):
            stated = [
                replace(s, shape=(d.shape[0], *s.shape[1:])) if s.own_rows and d.shape else s
                for s, d in zip(stated, described, strict=True)
            ]
        inferred = [(tuple(d.shape), d.dtype) for d in described]
        if not self.call.expected.stage and inferred != [(s.shape, s.dtype) for s in stated]:
            raise FaultError(
                "other outputs",
                f"infer_shape returns {_words(inferred)}, the case states "
                f"{_words([(s.shape, s.dtype) for s in stated])}",
            )
        return stated

    def _check_inputs(self, given: Sequence[Placed], before: Sequence[bytes | None]) -> None:
        for position, (own, kept) in enumerate(zip(given, before, strict=True)):
            if self.call.in_place and position == 0:
                continue
            if own.content() != kept:
                raise FaultError("a changed input", f"the call has changed input {position}")


def _words(tensors: Sequence[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for shape, dtype in tensors) or "no output"
