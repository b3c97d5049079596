"""The variants of a run of golden's cases, and memory for each variant."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import collops
from collops.core import core
from collops.golden_run.backends import DeviceMemory, memory_of
from tests.conformance.devices import DEVICES, HERE, POISON, scratch, together

ISAS = core().kernels()[1]  # all that this CPU can run
HCCL_REDUCES = ("int8", "int16", "int32", "float16", "float32", "bfloat16")


class Run(NamedTuple):
    """One run of all cases of an operator, in which the ranks live through all of them.

    memory: of x and of the outputs: "plain", "window", "unaligned", off by one byte, "npu" or
    "cuda".
    form: of the plain level's x and out. "whole": as the case has it; "moved": its rows along the
    last dim, of another layout; "list": two tensors to gather, one block per destination to reduce;
    "in place": x is its block of all_gather's output, and all_reduce's output.
    """

    level: str
    ranks: int
    memory: str = "plain"
    form: str = "whole"
    threads: bool = False
    isa: str = ""  # COLLOPS_ISA; empty: the best here
    num_threads: int = 0  # COLLOPS_NUM_THREADS; 0: as many as the library takes
    backend: str = "shm"

    def __str__(self) -> str:
        """The settings that are not the defaults."""
        said = [self.backend, self.level, f"p{self.ranks}", self.memory]
        said += [self.form] if self.form != "whole" else []
        said += ["threads"] if self.threads else []
        said += [self.isa] if self.isa else []
        said += [f"{self.num_threads} threads per rank"] if self.num_threads > 1 else []
        return " ".join(said)

    @property
    def sums_in_order(self) -> bool:
        """Whether sums are added in the order of the ranks."""
        return self.backend != "hccl"

    @property
    def is_here(self) -> bool:
        """Whether this machine can run it, and this set-up does."""
        return self.isa in ("", *ISAS) and (self.memory if self.on_device else "") == HERE

    @property
    def on_device(self) -> bool:
        """Whether the tensors lie in the memory of a device."""
        return self.memory in DEVICES

    @property
    def device_memory(self) -> DeviceMemory:
        """What makes them there."""
        memory = memory_of(self.backend)
        assert memory is not None
        return memory

    def join(self, rank: int) -> collops.Communicator:
        """The ranks' communicator, on the rank's device."""
        if self.on_device:
            self.device_memory.choose_device(rank)
        return collops.init(backend=self.backend)

    def enter(self) -> None:
        """Before a call on a device: all ranks of a process have their tensors first."""
        if self.on_device:
            together.enter()

    def execute(
        self, comm: collops.Communicator, op: collops.Operation, ins: list[Any], outs: list[Any]
    ) -> int:
        """Both phases of an operation; the bytes of its workspace."""
        size = op.get_workspace_size(ins, outs)
        if not self.on_device:
            op.execute(ins, outs, self.poisoned(comm, (size,), np.uint8) if size else None)
            return size
        memory = self.device_memory
        workspace = scratch(memory, size) if size else None
        self.enter()
        op.execute(ins, outs, workspace, stream=memory.stream())
        return size

    def reduces(self, dtype: str, op: str, *, evenly: bool) -> bool:
        """Whether the backend has a reduction; HCCL has fewer to parts of uneven size."""
        if self.backend != "hccl" or not op:
            return True
        if op not in ("sum", "prod", "max", "min"):
            return False
        if not evenly:
            return dtype in HCCL_REDUCES and op != "prod"
        # Products of floats overflow in one order and not in another.
        without_product = op == "prod" and dtype not in ("int8", "int32", "int64")
        return dtype in (*HCCL_REDUCES, "int64") and not without_product

    @property
    def environment(self) -> dict[str, str]:
        """Of the ranks."""
        isa = {"COLLOPS_ISA": self.isa} if self.isa else {}
        isa |= DEVICES.get(self.memory, {})
        return isa | ({"COLLOPS_NUM_THREADS": str(self.num_threads)} if self.num_threads else {})

    def param(self, comm: collops.Communicator) -> dict[str, Any]:
        """The fields of every struct of this run."""
        fields: dict[str, Any] = {"backend": self.backend, "rank": comm.rank}
        if self.threads:
            return fields | {"rank_size": comm.size, "comm_mode": collops.COMM_MULTI_THREAD}
        return fields | {"hccl_comm": comm}

    def named_param(self, comm: collops.Communicator) -> dict[str, Any]:
        """The same; the communicator is found by its domain, processes too."""
        mode = collops.COMM_MULTI_THREAD if self.threads else collops.COMM_MULTI_PROCESS
        return {
            "backend": self.backend,
            "rank": comm.rank,
            "rank_size": comm.size,
            "comm_mode": mode,
        }

    def poisoned(self, comm: collops.Communicator, shape: Any, dtype: Any) -> Any:
        """Memory of the run's kind, with nothing in it that could be right by accident."""
        return self.placed(self.poisoned_on_host(comm, shape, dtype))

    def poisoned_on_host(self, comm: collops.Communicator, shape: Any, dtype: Any) -> Any:
        if self.memory == "window":
            array = comm.empty(shape, dtype)
        elif self.memory == "unaligned":
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            array = np.empty(size + 1, np.uint8)[1:].view(dtype).reshape(shape)
        else:
            array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[...] = POISON
        return array

    def place(self, comm: collops.Communicator, array: Any) -> Any:
        """The same values in memory of the run's kind."""
        placed = self.poisoned_on_host(comm, array.shape, array.dtype)
        placed[...] = array
        return self.placed(placed)

    def placed(self, array: Any) -> Any:
        """What a call takes: the array itself, or a tensor of a device with its values."""
        if not self.on_device:
            return array
        return self.device_memory.to_device(as_golden(array), array.dtype.name)

    def values(self, tensor: Any) -> Any:
        """A tensor's values as an array."""
        return self.device_memory.from_device(tensor) if self.on_device else tensor


def as_real(array: Any, dtype: str) -> Any:
    """Golden's array of that dtype as numpy with ml_dtypes has it."""
    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


def as_golden(array: Any) -> Any:
    """An output as golden states it: bfloat16 is np.uint16 there."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array
