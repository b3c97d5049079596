"""What vLLM's plug-in puts into vLLM on CPUs: the communicator, and what its experts lack there.

vLLM is imported inside the functions: this module can be looked at without it.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

import collops
from collops.torch.serving.expert_rows import owners_of, ranks_of, return_rows, send_rows
from collops.torch.serving.vllm import VllmCollectives

_MEANT = "_collops_expert_map"  # marks a method that was given what it ignored
_OWNERS = "_collops_owners"  # of an expert_map: the ranks that have the experts
# With less of all ranks' tokens it is faster to gather them all than to agree on who gets which.
LEAST_BYTES = 512 << 10


def __getattr__(name: str) -> Any:
    # vLLM imports the class by its name, in each process that makes groups.
    if name == "CpuCommunicator":
        return _communicator()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def enable(platform: type) -> None:
    """Makes vLLM use collops on a platform of CPUs; a second call changes nothing.

    Args:
        platform: the class of vllm.platforms.current_platform.

    Raises:
        AttributeError: it lacks what the versions have that collops knows; it is then unchanged.
    """
    for name in ("dist_backend", "get_device_communicator_cls", "use_custom_op_collectives"):
        getattr(platform, name)
    changed: Any = platform
    changed.dist_backend = "collops"
    changed.get_device_communicator_cls = classmethod(lambda _: f"{__name__}.CpuCommunicator")
    changed.use_custom_op_collectives = classmethod(lambda _: _compiles())


def _compiles() -> bool:
    """Whether torch.compile traces the model: it must see one operator for each call, not inside.

    Where it does not (``--enforce-eager``), such an operator would only take time.
    """
    from vllm.config import CompilationMode, get_current_vllm_config_or_none

    config = get_current_vllm_config_or_none()
    return config is None or bool(config.compilation_config.mode != CompilationMode.NONE)


@functools.cache
def _communicator() -> type:
    from vllm.distributed.device_communicators import base_device_communicator, cpu_communicator
    from vllm.logger import init_logger

    class CpuCommunicator(VllmCollectives, cpu_communicator.CpuCommunicator):
        """vLLM's communicator of CPU ranks, with all calls on collops."""

        def __init__(
            self,
            cpu_group: Any,
            device: torch.device | None = None,
            device_group: Any = None,
            unique_name: str = "",
            use_all2all: bool = False,
        ) -> None:
            # Without CpuCommunicator's own, which would set up shared memory that nobody uses.
            base_device_communicator.DeviceCommunicatorBase.__init__(
                self, cpu_group, device, device_group, unique_name, use_all2all=use_all2all
            )
            if self.global_rank == 0:
                _say_that_it_is_on()
            self.dist_module = dist
            self.supports_tensor_dict = True
            if self.is_ep_communicator and self.world_size > 1:
                mended = mend_experts()
                if mended and self.rank_in_group == 0:
                    init_logger("vllm.collops").info(
                        "collops gives these experts their expert_map, which vLLM ignores on CPUs: "
                        "%s",
                        ", ".join(mended),
                    )
            if self.use_all2all:
                self.all2all_manager = _expert_manager()(self.cpu_group)

    return CpuCommunicator


@functools.cache
def _expert_manager() -> Any:
    """The class whose object moves tokens to the experts of other ranks."""
    from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager
    from vllm.logger import init_logger

    try:
        tell_expert_map()
        for name in ("_get_comm_group", "_get_sizes"):
            getattr(AgRsAll2AllManager, name)
    except (AttributeError, ImportError) as error:
        log: Any = init_logger("vllm.collops")
        log.warning("collops gathers all tokens on all ranks: vLLM has changed: %s", error)
        return AgRsAll2AllManager

    class ExpertManager(AgRsAll2AllManager):
        """vLLM's manager, which gathers all tokens on all ranks: here it does so with few tokens.

        And where all ranks have a part of each expert: there is no map of experts then.
        """

        expert_map: torch.Tensor | None = None  # of the layer that dispatches next
        _sent: tuple[Any, Any] | None = None  # the group and the rows of a dispatch

        def dispatch(
            self,
            hidden_states: torch.Tensor,
            topk_weights: torch.Tensor,
            topk_ids: torch.Tensor,
            is_sequence_parallel: bool = False,
            extra_tensors: list[torch.Tensor] | None = None,
        ) -> Any:
            self._sent = None
            xs = [hidden_states, topk_weights, topk_ids, *(extra_tensors or [])]
            ranks = self._get_comm_group(is_sequence_parallel)
            tokens = sum(self._get_sizes(hidden_states.shape[0], ranks))  # of all ranks
            row = hidden_states.shape[1] * hidden_states.element_size()
            if self.expert_map is None or tokens * row < LEAST_BYTES:
                return super().dispatch(*xs[:3], is_sequence_parallel, extra_tensors)
            group = ranks.device_communicator.collops_group
            owners = getattr(self.expert_map, _OWNERS, None)
            if owners is None:  # the layer's first time, on all ranks
                owners = owners_of(group, self.expert_map)
                setattr(self.expert_map, _OWNERS, owners)
            rows, handle = send_rows(group, ranks_of(owners, topk_ids), xs)
            self._sent = group, handle
            return tuple(rows) if extra_tensors is None else (*rows[:3], rows[3:])

        def combine(
            self, hidden_states: torch.Tensor, is_sequence_parallel: bool = False
        ) -> torch.Tensor:
            if self._sent is None:
                return super().combine(hidden_states, is_sequence_parallel)
            (group, handle), self._sent = self._sent, None
            return return_rows(group, hidden_states, handle)

    return ExpertManager


def tell_expert_map() -> None:
    """Makes vLLM's layers of experts tell the manager which experts this rank has.

    Raises:
        AttributeError: they do not know it themselves in this version.
    """
    from vllm.distributed import get_ep_group
    from vllm.model_executor.layers.fused_moe.prepare_finalize import naive_dp_ep

    layer = naive_dp_ep.MoEPrepareAndFinalizeNaiveDPEPModular
    prepare = layer.prepare
    signature = inspect.signature(prepare)
    if "expert_map" not in signature.parameters:
        raise AttributeError("prepare() of experts has no expert_map")

    @functools.wraps(prepare)
    def tell(self: Any, *args: Any, **kwargs: Any) -> Any:
        manager = get_ep_group().device_communicator.all2all_manager
        manager.expert_map = signature.bind(self, *args, **kwargs).arguments["expert_map"]
        try:
            return prepare(self, *args, **kwargs)
        finally:
            manager.expert_map = None

    if not hasattr(prepare, _MEANT):
        setattr(tell, _MEANT, True)
        layer.prepare = tell


@functools.cache
def _say_that_it_is_on() -> None:
    """Once, and in a process with ranks: vLLM's first one has no log yet when it loads plug-ins."""
    from vllm.logger import init_logger

    init_logger("vllm.collops").info(
        "collops %s moves the data between CPU ranks; COLLOPS_VLLM=0 turns it off",
        collops.__version__,
    )


def mend_experts() -> list[str]:
    """Makes vLLM's CPU experts run with data- and expert-parallel ranks.

    They ignore expert_map, and read weights beyond their own if a token goes to an expert of
    another rank. torch.compile would trace the calls between ranks, and take the numbers of rows of
    the first step for constants.

    Returns:
        The classes of experts that ignored it.
    """
    from vllm.model_executor.layers.fused_moe import modular_kernel
    from vllm.model_executor.layers.fused_moe.experts import cpu_moe
    from vllm.model_executor.layers.fused_moe.runner import moe_runner

    if not hasattr(moe_runner.MoERunner._select_forward, _MEANT):
        moe_runner.MoERunner._select_forward = _opaque(moe_runner.MoERunner._select_forward)
    mended = []
    for cls in _experts(cpu_moe, modular_kernel.FusedMoEExpertsModular):
        if _ignores(cls.__dict__["apply"], "expert_map"):
            cls.apply = _with_expert_map(cls.__dict__["apply"])
            mended.append(cls.__name__)
    return mended


def _experts(module: Any, base: type) -> Iterator[Any]:
    """The classes of experts of a module that have a calculation of their own."""
    for cls in vars(module).values():
        if not isinstance(cls, type) or cls.__module__ != module.__name__:
            continue
        if issubclass(cls, base) and "apply" in cls.__dict__:
            yield cls


def _ignores(function: Any, name: str) -> bool:
    """Whether a function has an argument of this name, and no line that reads it."""
    if hasattr(function, _MEANT) or name not in inspect.signature(function).parameters:
        return False
    return not any(
        code.opname.startswith("LOAD") and name in _names(code.argval)
        for code in dis.get_instructions(function)
    )


def _names(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)  # Python 3.13 loads two at once


def _with_expert_map(apply: Callable[..., None]) -> Callable[..., None]:
    """The calculation of a class of experts, on the tokens and the experts of this rank alone."""
    signature = inspect.signature(apply)

    @functools.wraps(apply)
    def on_own_experts(self: Any, *args: Any, **kwargs: Any) -> None:
        if args:
            bound = signature.bind(self, *args, **kwargs).arguments
            kwargs = {name: value for name, value in bound.items() if name != "self"}
        expert_map = kwargs["expert_map"]
        if expert_map is None:
            return apply(self, **kwargs)
        output = kwargs["output"]
        rows, ids, weights = own_experts(expert_map, kwargs["topk_ids"], kwargs["topk_weights"])
        kwargs |= {"expert_map": None, "topk_ids": ids, "topk_weights": weights}
        if rows is None:
            return apply(self, **kwargs)
        output.zero_()
        if rows.numel():
            part = output.new_empty((rows.numel(), *output.shape[1:]))
            kwargs |= {"output": part, "hidden_states": kwargs["hidden_states"][rows]}
            apply(self, **kwargs)
            output[rows] = part
        return None

    setattr(on_own_experts, _MEANT, True)
    return on_own_experts


def own_experts(
    expert_map: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor
) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """The tokens that go to experts of this rank, with these experts and their weights.

    Args:
        expert_map: [experts of all ranks], an expert's number on this rank; -1: it has it not.
        topk_ids: [tokens, k], the experts of each token.
        topk_weights: [tokens, k].

    Returns:
        The tokens' numbers, None for all; the experts, [those tokens, k' <= k]; their weights. A
        token with fewer than k' experts here has its first one again, with weight 0.
    """
    local = expert_map[topk_ids.long()].to(topk_ids.dtype)
    here = local >= 0
    counts = here.sum(1)
    most = int(counts.max()) if counts.numel() else 0
    rows = None
    if most == 0 or not bool(counts.all()):
        rows = counts.nonzero().flatten()
        local, here, topk_weights = local[rows], here[rows], topk_weights[rows]
    if most < topk_ids.shape[1] or not bool(here.all()):
        # The experts of this rank first, in their order.
        order = here.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        here, local = here.gather(1, order), local.gather(1, order)
        weights = topk_weights.gather(1, order)
        topk_weights = torch.where(here, weights, torch.zeros_like(weights))
        local = torch.where(here, local, local[:, :1])
    return rows, local.contiguous(), topk_weights.contiguous()


def _opaque(select_forward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """vLLM's choice of how a layer of experts is called, on several ranks as on GPUs."""

    @functools.wraps(select_forward)
    def select(self: Any) -> Any:
        parallel = self.moe_config.moe_parallel_config
        if parallel.dp_size == 1 and not parallel.use_ep:
            return select_forward(self)
        operators = torch.ops.vllm
        return (
            operators.moe_forward if self._shared_experts is None else operators.moe_forward_shared
        )

    setattr(select, _MEANT, True)
    return select
