"""DeviceMemory, what golden run needs of a library that makes tensors of a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collops.golden.data.dtypes import Array


class DeviceMemory(ABC):
    """Tensors of one kind of device; a rank is a process or a thread."""

    @abstractmethod
    def load(self) -> None:
        """Imports the library, once, before ranks are forked. Uses no device.

        Raises:
            ValueError: it cannot be imported.
        """

    @abstractmethod
    def choose_device(self, rank: int) -> None:
        """Makes the device of a rank, by the rank's number, that of this thread."""

    def stream(self) -> Any:
        """What this thread's calls get as stream=; None: the current stream, as by default."""
        return None

    @abstractmethod
    def to_device(self, array: Array, dtype: str) -> Any:
        """A tensor with the array's values, on this thread's device."""

    @abstractmethod
    def from_device(self, tensor: Any) -> Array:
        """A tensor's values, after its stream has completed."""
