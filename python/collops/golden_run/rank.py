"""What a rank does with a call: every step of the operation, and a report of how it went."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.errors import Error
from collops.golden_run.tensors import as_array, as_tensor, poisoned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.golden.dtypes import Array
    from collops.golden_run.calls import Argument, Call

# The last operation of every domain: while it lives, so does its communicator.
_kept: dict[tuple[int, str], Any] = {}


@dataclass(frozen=True)
class Report:
    """How a call ended on one rank.

    `stage` is the step that failed, empty if none did; `code` is the error's, -1 for a fault that
    has none, whose `name` is then a word for it. `outputs` are what came out, as golden's arrays.
    """

    stage: str = ""
    code: int = 0
    name: str = "NO_ERROR"
    message: str = ""
    outputs: tuple[Array, ...] = ()


class FaultError(Exception):
    """A rank noticed what no error code says."""


def execute(call: Call, rank: int) -> Report:
    """Runs a call up to the step that it stops at."""
    steps = _Steps(call, rank)
    try:
        return steps.run()
    except Error as error:
        steps.refuse(error)
        return Report(steps.stage, error.code, error.name, error.message)
    except FaultError as fault:
        steps.refuse(fault)
        return Report(steps.stage, -1, "wrong", str(fault))
    except Exception as error:
        steps.refuse(error)
        return Report(steps.stage, -1, type(error).__name__, traceback.format_exc().strip())


class _Steps:
    """One call on one rank; `stage` is the step that it is at."""

    def __init__(self, call: Call, rank: int) -> None:
        self.call = call
        self.rank = rank
        self.stage = "create"
        self.operation: Any = None

    def run(self) -> Report:
        param = getattr(collops, self.call.struct).from_json(self.call.param(self.rank))
        self.operation = collops.Operation(param)
        if self.call.stops_at == "create":
            return Report()
        _kept[self.rank, param.comm_domain] = self.operation
        self.stage = "data"
        given = self.call.inputs(self.rank)
        before = [None if a.array is None else a.array.tobytes() for a in given]
        ins = [as_tensor(argument) for argument in given]
        self.stage = "infer_shape"
        described = self.operation.infer_shape(ins)
        if self.call.stops_at == "infer_shape":
            return Report()
        outs = [poisoned(output) for output in self._outputs(described)]
        self.stage = "setup"
        size = self.operation.get_workspace_size(ins, [as_tensor(output) for output in outs])
        if self.call.stops_at == "setup":
            return Report()
        self.stage = "execute"
        workspace = np.empty(size, np.uint8) if size else None
        self.operation.execute(ins, [as_tensor(output) for output in outs], workspace)
        self._check_inputs(given, before)
        results = given[:1] if self.call.in_place else outs
        return Report(outputs=tuple(as_array(result) for result in results))

    def refuse(self, error: Exception) -> None:
        """Tells the ranks that have come to this call that this one will not."""
        waiting = self.call.stops_at in ("", "execute") and self.stage != "execute"
        if waiting and self.operation is not None:
            self.operation._refuse(error)

    def _outputs(self, described: Sequence[Any]) -> list[Argument]:
        """The outputs that the call states, which must be those of infer_shape if it is to work."""
        stated = self.call.outputs(self.rank)
        if len(stated) == len(described):
            stated = [
                replace(s, shape=(d.shape[0], *s.shape[1:])) if s.own_rows and d.shape else s
                for s, d in zip(stated, described, strict=True)
            ]
        inferred = [(tuple(d.shape), d.dtype) for d in described]
        if not self.call.expected.stage and inferred != [(s.shape, s.dtype) for s in stated]:
            raise FaultError(
                f"infer_shape says {_words(inferred)}, the case "
                f"{_words([(s.shape, s.dtype) for s in stated])}"
            )
        return stated

    def _check_inputs(self, given: Sequence[Argument], before: Sequence[bytes | None]) -> None:
        for position, (argument, kept) in enumerate(zip(given, before, strict=True)):
            if self.call.in_place and position == 0:
                continue
            if argument.array is not None and argument.array.tobytes() != kept:
                raise FaultError(f"the call has changed input {position}")


def _words(tensors: Sequence[tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{dtype} {list(shape)}" for shape, dtype in tensors) or "no output"
