"""From golden's arrays to the tensors that an operation takes, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.golden.data import poison
from collops.golden.dtypes import DTYPES
from collops.tensors import TensorDesc, numpy_type, with_format

if TYPE_CHECKING:
    from collops.golden.dtypes import Array
    from collops.golden_run.calls import Argument


def as_tensor(argument: Argument) -> Any:
    """What an operation takes for an argument, on the memory of its array."""
    if argument.array is None:
        return _description(argument)
    array: Any = argument.array
    if argument.dtype == "bfloat16":
        array = array.view(numpy_type("bfloat16"))
    return array if argument.format == "nd" else with_format(array, argument.format)


def poisoned(output: Argument) -> Argument:
    """An output with memory full of poison, where it can have memory."""
    if output.dtype not in DTYPES or any(dim < 0 for dim in output.shape):
        return output
    return replace(output, array=poison(output.shape, output.dtype))


def as_array(argument: Argument) -> Array:
    """The array of an argument that has one."""
    if argument.array is None:
        raise ValueError(f"a tensor of {argument.dtype} {list(argument.shape)} has no memory")
    return np.asarray(argument.array)


def _description(argument: Argument) -> TensorDesc:
    desc = object.__new__(TensorDesc)  # numpy does not know all the names that a case may state
    for name in ("shape", "dtype", "format"):
        object.__setattr__(desc, name, getattr(argument, name))
    return desc
