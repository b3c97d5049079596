"""golden's arrays in the memory of an NPU, by torch_npu, which is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collops.golden.data.dtypes import Array


def load() -> None:
    """Imports torch_npu, once, before ranks are forked. Uses no device.

    Raises:
        ValueError: it cannot be imported.
    """
    try:
        import_module("torch_npu")
    except (ImportError, OSError, RuntimeError) as problem:
        raise ValueError(f"backend hccl needs tensors of torch_npu: {problem}") from None


def choose_device(rank: int) -> None:
    """Selects the NPU of a rank, by the rank's number, for this thread."""
    devices = _torch().npu
    devices.set_device(rank % devices.device_count())


def to_device(array: Array, dtype: str) -> Any:
    """A torch tensor with the array's values, on this thread's NPU."""
    torch = _torch()
    if dtype != "bfloat16":
        return torch.from_numpy(np.array(array)).npu()
    return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16).npu()


def from_device(tensor: Any) -> Array:
    """A tensor's values, after its stream has completed."""
    torch, host = _torch(), tensor.cpu()
    if host.dtype == torch.bfloat16:
        return np.asarray(host.view(torch.int16).numpy().view(np.uint16))
    return np.asarray(host.numpy())


def _torch() -> Any:
    import_module("torch_npu")
    return import_module("torch")
