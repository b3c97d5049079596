"""The API pages of the site: which public names each of them documents."""

from __future__ import annotations

from typing import NamedTuple


class ApiPage(NamedTuple):
    """A page: its title, a sentence about it, and the names that it documents, in order."""

    title: str
    purpose: str
    names: tuple[str, ...]


def of(module: str, names: str) -> tuple[str, ...]:
    """The full names of a module's names."""
    return tuple(f"{module}.{name}" for name in names.split())


# By file name. A test compares them with the `__all__` of the modules.
API_PAGES = {
    "communicator": ApiPage(
        "Communicator",
        "The plain level: a group of ranks and its calls.",
        of("collops", "init Communicator StartedCall SendTo RecvFrom MoeHandle"),
    ),
    "operations": ApiPage(
        "Operations",
        "The ATB level: a parameter struct configures an `Operation`, which runs in two phases.",
        of(
            "collops",
            "Operation AllGatherParam AllGatherVParam AllReduceParam AllToAllParam AllToAllVParam "
            "AllToAllVV2Param BroadcastParam LinearParallelParam RecvParam ReduceScatterParam "
            "ReduceScatterVParam SendParam ParallelType TwoDimTPInfo MoeInfo CommMode "
            "COMM_MULTI_PROCESS COMM_MULTI_THREAD COMM_UNDEFINED TensorDesc with_format Prof "
            "set_buffer_size",
        ),
    ),
    "errors": ApiPage(
        "Errors",
        "Every error of a call is a `collops.Error`; [Errors](../errors.md) explains the codes.",
        of(
            "collops",
            "Error ErrorCode ArgumentError OutOfMemoryError RankTimeoutError PeerLostError "
            "RankMismatchError SystemFailureError UnsupportedError AbortedError",
        ),
    ),
    "testing": ApiPage(
        "Testing",
        "Starts ranks on this host, for tests; [Testing](../testing.md) has examples.",
        of("collops.testing", "run_ranks ranks RankErrors RankDiedError RankEndedError"),
    ),
    "trace": ApiPage(
        "Traces",
        "Records the calls of this process; [Logs and traces](../tracing.md) explains the files.",
        of("collops.trace", "start stop record"),
    ),
    "gpu_memory": ApiPage(
        "GPU memory",
        "GPU arrays for programs without torch and CuPy; [GPUs](../gpu.md) says what was tested.",
        of("collops", "CudaArray cuda_empty cuda_empty_cache"),
    ),
    "torch": ApiPage(
        "torch",
        "Operators and backend for PyTorch; [PyTorch](../torch.md) explains them.",
        (
            *of(
                "collops.torch",
                "all_gatherv reduce_scatterv all_to_allv all_reduce all_gather_matmul "
                "matmul_reduce_scatter all_gather_matmul_reduce_scatter matmul_all_reduce matmul "
                "all_to_all_matmul matmul_all_to_all moe_dispatch moe_combine MoeRouting "
                "all_to_allv_grouped_matmul grouped_matmul_all_to_allv "
                "all_reduce_ broadcast_ all_gather_into reduce_scatter_into "
                "enable_async_tp disable_async_tp fused_patterns Group last_calls shrink",
            ),
            *of(
                "collops.torch.serving",
                "VllmCollectives SglangCollectives SglangCommunicator collops_group",
            ),
            *of("collops.torch.torchft", "ProcessGroupCollops"),
        ),
    ),
    "jax": ApiPage(
        "jax",
        "Collectives inside programs of JAX; [JAX](../jax.md) explains them.",
        of(
            "collops.jax",
            "all_gatherv reduce_scatterv all_reduce all_to_allv ragged_all_to_all init",
        ),
    ),
    "ray": ApiPage(
        "Ray",
        "A backend of ray.util.collective; [Clients](../clients.md#ray) shows how it is used.",
        of("collops.ray", "RayGroup register"),
    ),
    "golden": ApiPage(
        "Golden",
        "The numpy references and their cases; [Golden](../golden.md) describes the commands.",
        (
            *of(
                "collops.golden.cases",
                "all_cases inputs expected all_outputs case_layout case_bounds struct_operator "
                "struct_fields Case",
            ),
            *of("collops.golden.data", "fill poison"),
            *of("collops.golden.compare", "compare Comparison Extreme"),
        ),
    ),
}


# Their methods are those of torch, torchft and Ray, which call them.
WITHOUT_MEMBERS = {
    "collops.torch.Group",
    "collops.torch.torchft.ProcessGroupCollops",
    "collops.ray.RayGroup",
}


def api_page(page: ApiPage) -> str:
    """A page as Markdown, whose `:::` lines mkdocstrings replaces."""
    blocks = [f"# {page.title}", page.purpose]
    for name in page.names:
        options = (
            "\n    options: {members: false, inherited_members: false}"
            if name in WITHOUT_MEMBERS
            else ""
        )
        blocks.append(f"::: {name}{options}")
    return "\n\n".join(blocks) + "\n"
