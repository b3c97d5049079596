"""The names that torch keeps to itself, looked up here and nowhere else in collops.torch.

No release of torch promises them. One that is missing is an error of the import, which says with
which versions it was tested; another torch is tried, and said to be unknown once.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import torch

TESTED = "2.9 to 2.15"
_OLDEST, _NEWEST = (2, 9), (2, 15)


def lookup(module: str, *names: str) -> Any:
    """A module of torch's; or one name in it, or several as a tuple."""
    try:
        found = importlib.import_module(module)
        values = tuple(getattr(found, name) for name in names)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"collops.torch was tested with torch {TESTED}; torch {torch.__version__} lacks a part "
            f"of it, {error}: install one of these versions, or a newer collops"
        ) from error
    if not names:
        return found
    return values if len(values) > 1 else values[0]


def warn_of(version: str) -> None:
    """Says that a version of torch is newer or older than all that were tested."""
    major, minor = (int(word) for word in version.split(".")[:2])
    if (major, minor) > _NEWEST:
        advice = "is newer: if a call fails, look for a newer collops"
    elif (major, minor) < _OLDEST:
        advice = "is older: a call may fail"
    else:
        return
    warnings.warn(
        f"collops.torch was tested with torch {TESTED}; torch {version} {advice}", stacklevel=2
    )


warn_of(torch.__version__)

c10d = lookup("torch._C._distributed_c10d")
# torch's module of Python functions, and of the tables of groups that they keep.
functions = lookup("torch.distributed.distributed_c10d")
# What torch's own operators ask: it is C++ and takes 0.1 us.
resolve_process_group = lookup("torch.distributed.distributed_c10d", "_resolve_process_group")
coalescing_manager = lookup("torch.distributed.distributed_c10d", "_coalescing_manager")
check_messages = lookup("torch.distributed.distributed_c10d", "_check_p2p_op_list")

# What every kernel in Python below autograd uses, torch's own included.
after_views, after_autograd, any_requires_grad, AutoDispatchBelowAutograd, DispatchKey = lookup(
    "torch._C",
    "_after_ADInplaceOrView_keyset",
    "_after_autograd_keyset",
    "_any_requires_grad",
    "_AutoDispatchBelowAutograd",
    "DispatchKey",
)
OpOverload, OpOverloadPacket = lookup("torch._ops", "OpOverload", "OpOverloadPacket")
# Who sees the operators that a thread calls: modes, torch.func's transforms, torch.jit.trace, and
# the profiler. In C++, below 0.1 us each.
dispatch_modes = lookup("torch._C", "_len_torch_dispatch_stack")
function_modes = lookup("torch._C", "_len_torch_function_stack")
func_transforms = lookup("torch._C._functorch", "get_dynamic_layer_stack_depth")
jit_trace = lookup("torch._C", "_get_tracing_state")
profiles = lookup("torch._C._autograd", "_profiler_enabled")
is_functional = lookup("torch", "_is_functional_tensor")

# The compiler's own disable() and skip_code() are made of the first.
eval_frame = lookup("torch._C._dynamo.eval_frame")


def opaque_object() -> Any:
    """What the compiler may do with objects of a type; torch 2.9 has no such module."""
    return lookup("torch._library.opaque_object")


def symmetric_memory() -> Any:
    """torch's functions that fuse products with calls."""
    return lookup("torch.distributed._symmetric_memory")


def fsdp_communication() -> Any:
    """The base classes of what moves FSDP2's parameters and gradients."""
    return lookup("torch.distributed.fsdp._fully_shard._fsdp_api", "AllGather", "ReduceScatter")


def fake_mode_of(values: Any) -> Any:
    """The mode in which values without data were made; None: none."""
    return lookup("torch._guards", "detect_fake_mode")(values)


# Of inductor, whose import takes seconds.
INDUCTOR_LOWERING = "torch._inductor.lowering"
INDUCTOR_CONFIG = "torch._inductor.config"


def inductor_config() -> Any:
    """Its settings, with the passes of others."""
    return lookup(INDUCTOR_CONFIG)


def inductor_after_gradients() -> Any:
    """Its module of passes over a graph that has no more gradients to come."""
    return lookup("torch._inductor.fx_passes.post_grad")


def inductor_graph() -> Any:
    """The graph that it lowers now."""
    return lookup("torch._inductor.virtualized", "V").graph


def inductor_read(name: str) -> Any:
    """That an operation of the graph reads the whole result with that name."""
    return lookup("torch._inductor.dependencies", "StarDep")(name)


def inductor_pass() -> Any:
    """The base class of a pass of a program's own, and the function that sorts a graph."""
    base = lookup("torch._inductor.custom_graph_pass", "CustomGraphPass")
    return base, lookup("torch._inductor.fx_passes.post_grad", "stable_topological_sort")
