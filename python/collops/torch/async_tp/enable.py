"""Turns the fused products of torch.compile on and off for a group."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist

from collops.errors import ErrorCode, raise_status
from collops.torch import private
from collops.torch.group import Group


def group_of(call: str, group: Any = None) -> Group:
    """The collops group of a group, its name, a mesh of one dim or None (all ranks).

    `call` is for the error.
    """
    if group is None:
        group = dist.group.WORLD
    elif isinstance(group, str):
        group = private.resolve_process_group(group)
    elif hasattr(group, "get_group"):
        group = group.get_group()
    if isinstance(group, Group):
        return group
    what = type(group).__name__
    if isinstance(group, dist.ProcessGroup):
        what = f'group "{group.group_name}" of the backend {dist.get_backend(group)}'
    return raise_status(
        ErrorCode.ERROR_UNSUPPORTED,
        f"{call}: on CPUs this needs a group of the backend collops, got {what}; make it with "
        'dist.new_group(ranks, backend="collops")',
    )


# The groups that are enabled; the pass knows the set itself.
_group_names: set[str] = set()


def enable_async_tp(group: Any = None) -> None:
    """Lets torch.compile fuse matrix products with a group's collective calls around them.

    ``all_gather(x) @ w -> fused_all_gather_matmul(x, [w])`` and
    ``reduce_scatter(x @ w) -> fused_matmul_reduce_scatter(x, w)``

    The pass runs after those that the user has set in inductor's ``post_grad_custom_post_pass``,
    on graphs that are compiled afterwards. Every rank of the group calls this function.

    Args:
        group: a collops group, its name, a mesh of one dim; None: the group of all ranks.

    Returns:
        None.

    Raises:
        UnsupportedError: the group's backend is not collops.

    Source of the semantics: torch's ``_micro_pipeline_tp`` with
    ``enable_symm_mem_for_group``, which needs NCCL.

    Example:
        >>> import torch.distributed as dist, collops.torch
        >>> from collops.testing import run_ranks
        >>> def switch(rank, path):
        ...     dist.init_process_group(
        ...         "collops", init_method=f"file://{path}", rank=rank, world_size=2
        ...     )
        ...     collops.torch.enable_async_tp()
        ...     collops.torch.disable_async_tp()
        ...     dist.destroy_process_group()
        ...     return collops.torch.fused_patterns()
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run_ranks(switch, 2, f"{folder}/store")[0]
        FusedPatterns(all_gather_matmul=0, matmul_reduce_scatter=0)
    """
    name = group_of("enable_async_tp", group).group_name
    # Inductor takes seconds to import: only who compiles needs it.
    from collops.torch.async_tp.graph_pass import AsyncTensorParallel

    _group_names.add(name)
    private.inductor_config().post_grad_custom_post_pass = AsyncTensorParallel(
        _group_names, _others()
    )


def disable_async_tp(group: Any = None) -> None:
    """Undoes enable_async_tp(); graphs that are compiled already stay as they are.

    ``enabled groups = enabled groups - {group}``

    Args:
        group: as in enable_async_tp(); None: every group that is enabled.

    Returns:
        None.

    Raises:
        UnsupportedError: the group's backend is not collops.

    Source of the semantics: enable_async_tp().

    Example: see enable_async_tp().

        >>> import collops.torch
        >>> collops.torch.disable_async_tp()
    """
    if group is None:
        _group_names.clear()
    else:
        _group_names.discard(group_of("disable_async_tp", group).group_name)
    if not _group_names and private.INDUCTOR_CONFIG in sys.modules:
        others = _others()
        private.inductor_config().post_grad_custom_post_pass = (
            others[0] if len(others) == 1 else others or None
        )


def _others() -> list[Any]:
    """The passes of others that inductor runs, or that ours runs first."""
    from collops.torch.async_tp.graph_pass import AsyncTensorParallel

    given = private.inductor_config().post_grad_custom_post_pass
    several = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
    return [
        other
        for each in several
        for other in (each.others if isinstance(each, AsyncTensorParallel) else [each])
    ]
