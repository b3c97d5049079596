"""What SGLang calls in each of its processes: on CPUs its ranks then use collops.

The entry point in pyproject.toml names register(). The rest of collops is imported when a process
makes its first group.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

_COORDINATOR = "sglang.srt.distributed.parallel_state.GroupCoordinator"


def register() -> None:
    """Makes SGLang use collops, unless it runs on other devices or COLLOPS_SGLANG is 0.

    SGLang runs on CPUs if SGLANG_USE_CPU_ENGINE is 1.
    """
    if os.environ.get("COLLOPS_SGLANG") == "0":
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.utils import is_cpu

    if not is_cpu():
        return
    import collops

    for name, around in _AROUND.items():
        HookRegistry.register(f"{_COORDINATOR}.{name}", around, HookType.AROUND)
    logging.getLogger("sglang.collops").info(
        "collops %s moves the data between CPU ranks; COLLOPS_SGLANG=0 turns it off",
        collops.__version__,
    )


def _init(
    own: Callable[..., None],
    self: Any,
    group_ranks: Sequence[Sequence[int]],
    local_rank: int,
    torch_distributed_backend: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """With a group of collops in place of gloo's, and a communicator on it in place of pynccl's."""
    backend = "collops" if torch_distributed_backend == "gloo" else torch_distributed_backend
    own(self, group_ranks, local_rank, backend, *args, **kwargs)
    if backend == "collops" and self.world_size > 1:
        from collops.torch.serving import SglangCommunicator

        self.pynccl_comm = SglangCommunicator(self.device_group)
        self.collops_group = self.pynccl_comm.group


def _all_reduce(own: Callable[..., Any], self: Any, input_: Any) -> Any:
    """Without torch.distributed, which takes longer than a small call itself."""
    torch: Any = sys.modules["torch"]
    if not hasattr(self, "collops_group") or torch.compiler.is_compiling():
        return own(self, input_)
    self.pynccl_comm.all_reduce(input_)
    return input_


def _all_gatherv(
    own: Callable[..., Any], self: Any, input_: Any, sizes: Any = None, output: Any = None
) -> Any:
    """A list in one call."""
    if not hasattr(self, "collops_group"):
        return own(self, input_, sizes, output)
    from collops.torch.serving import SglangCollectives

    return SglangCollectives.all_gatherv(self, input_, sizes, output)


def _reduce_scatterv(
    own: Callable[..., Any], self: Any, input_: Any, output: Any = None, sizes: Any = None
) -> Any:
    if not hasattr(self, "collops_group"):
        return own(self, input_, output, sizes)
    from collops.torch.serving import SglangCollectives

    return SglangCollectives.reduce_scatterv(self, input_, output, sizes)


# By the coordinator's methods; each gets SGLang's own one first.
_AROUND: dict[str, Callable[..., Any]] = {
    "__init__": _init,
    "all_gatherv": _all_gatherv,
    "all_reduce": _all_reduce,
    "reduce_scatterv": _reduce_scatterv,
}
