"""Converts golden's arrays to the tensors of an operation, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.golden.data import poison
from collops.golden.data.dtypes import DTYPES
from collops.tensors import TensorDesc, numpy_type, with_format

if TYPE_CHECKING:
    from collops.golden.data.dtypes import Array
    from collops.golden_run.calls import Argument
    from collops.golden_run.memory.device_memory import DeviceMemory


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
