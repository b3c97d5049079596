"""enable_async_tp: what torch.compile fuses, and that the results stay what eager computes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
from torch import nn  # noqa: E402

import collops.torch  # noqa: E402
from tests.torch.groups import run_group  # noqa: E402


def fused_graph_backend() -> Callable[..., Any]:
    """A backend that runs inductor's passes over the graphs, and the graphs without code of C++."""
    from torch._guards import detect_fake_mode
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.fx_passes.post_grad import post_grad_passes
    from torch._inductor.virtualized import V

    def inner(graph_module: Any, inputs: Any, **options: Any) -> Any:
        with V.set_fake_mode(detect_fake_mode(inputs)):
            post_grad_passes(graph_module, options.get("is_inference", False))
        graph_module.recompile()
        return graph_module

    return lambda graph_module, inputs: compile_fx(graph_module, inputs, inner_compile=inner)


class Layers(nn.Module):  # type: ignore[misc]
    def __init__(self, bias: bool, activation: Callable[[Any], Any]) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(8, 12, bias=bias)
        self.down = nn.Linear(12, 8, bias=bias)

    def forward(self, x: Any) -> Any:
        return self.down(self.activation(self.up(x)))


def parallel(bias: bool, dim: int, activation: Callable[[Any], Any]) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    torch.manual_seed(0)
    plan = {
        "up": ColwiseParallel(input_layouts=Shard(dim)),
        "down": RowwiseParallel(output_layouts=Shard(dim)),
    }
    return parallelize_module(Layers(bias, activation), init_device_mesh("cpu", (2,)), plan)


def step(model: Any, rank: int, shape: tuple[int, ...]) -> list[Any]:
    """Output and all gradients of one step."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(rank)).requires_grad_()
    model.zero_grad()
    y = model(x)
    (y * torch.arange(y.numel()).view(y.shape)).sum().backward()
    gradients = [parameter.grad.full_tensor() for parameter in model.parameters()]
    return [y.detach(), x.grad, *gradients]


def worst(got: list[Any], expected: list[Any]) -> float:
    return max(
        float((a - b).abs().max() / (1 + b.abs().max())) for a, b in zip(got, expected, strict=True)
    )


def graphs_of_layers(rank: int) -> list[Any]:
    """Error and counts of the MLP, by bias and by the dim that is cut."""
    results = []
    collops.torch.enable_async_tp()
    for bias, shape, dim in ((False, (4, 8), 0), (True, (4, 8), 0), (True, (3, 4, 8), 1)):
        model = parallel(bias, dim, torch.relu)
        expected = step(model, rank, shape)
        collops.torch.fused_patterns(reset=True)
        got = step(torch.compile(model, backend=fused_graph_backend()), rank, shape)
        results.append((worst(got, expected), *collops.torch.fused_patterns()))
        torch.compiler.reset()
    return results


def attention_like(x: Any, a: Any, b: Any, group: Any) -> Any:
    """Several products of one gathered tensor, one of which needs another's result."""
    whole = functional.all_gather_tensor(x, 1, group)
    first, second = whole @ a, whole @ b
    third = whole @ (first.sum((0, 1)).outer(b[0]) @ b.t())[:, :1].expand(8, 3).tanh()[: a.shape[0]]
    own = functional.reduce_scatter_tensor(second @ b.t(), "avg", 1, group)
    columns = functional.reduce_scatter_tensor(first @ a.t(), "sum", 2, group)
    return first, third, own, columns, whole.sum()


def two_layers(x: Any, a: Any, b: Any, group: Any) -> Any:
    """A gather whose product goes straight to a scatter: both patterns share the product."""
    whole = functional.all_gather_tensor(x, 0, group)
    return functional.reduce_scatter_tensor(whole @ a, "sum", 0, group)


def varying(x: Any, a: Any, b: Any, group: Any) -> Any:
    """Sizes that torch.compile does not know."""
    whole = functional.all_gather_tensor(x, 0, group)
    return functional.reduce_scatter_tensor(torch.relu(whole @ a) @ b, "sum", 0, group)


def no_product(x: Any, a: Any, b: Any, group: Any) -> Any:
    """Nothing to fuse: no product of the gathered tensor; another product has a second user."""
    whole = functional.all_gather_tensor(x, 0, group)
    product = x @ b
    total = functional.reduce_scatter_tensor(product, "sum", 0, group)
    return whole + 1, total, product * 2


PROGRAMS: list[tuple[Any, tuple[int, ...], tuple[int, int]]] = [
    (attention_like, (3, 4, 8), (1, 2)),
    (two_layers, (4, 8), (1, 0)),
    (varying, (4, 3, 8), (1, 1)),
    (no_product, (4, 8), (0, 0)),
]
if torch.__version__ < "2.13":  # which traces no gather along another dim than 0
    del PROGRAMS[0]


def graphs_of_programs(rank: int) -> list[Any]:
    group, results = dist.group.WORLD, []
    random = torch.Generator().manual_seed(rank)
    for program, shape, _ in PROGRAMS:
        inputs = [torch.randn(size, generator=random) for size in (shape, (8, 8), (8, 6))]
        counts, outputs = [], []
        for on in (True, False):
            (collops.torch.enable_async_tp if on else collops.torch.disable_async_tp)(group)
            collops.torch.fused_patterns(reset=True)
            options = {"backend": fused_graph_backend(), "dynamic": program is varying}
            compiled = torch.compile(program, fullgraph=True, **options)
            outputs.append(compiled(*inputs, group))
            counts.append(tuple(collops.torch.fused_patterns()))
            torch.compiler.reset()
        expected = program(*inputs, group)
        several = isinstance(expected, tuple)
        pairs = [list(each) if several else [each] for each in (*outputs, expected)]
        results.append((worst(pairs[0], pairs[2]), worst(pairs[1], pairs[2]), counts))
    return results


def with_inductor(rank: int, folder: str) -> list[Any]:
    """The MLP by inductor's own code, and a pass of the user's that runs before ours."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    import torch._inductor.config as config

    config.compile_threads = 1
    config.cpp_cache_precompile_headers = False
    seen: list[str] = []

    def own_pass(graph: Any) -> None:
        seen.extend(str(node.target) for node in graph.nodes)

    config.post_grad_custom_post_pass = own_pass
    config.force_disable_caches = True  # a function has no uuid
    collops.torch.enable_async_tp()
    # Without an activation there is no C++ to compile.
    model = parallel(False, 0, nn.Identity())
    expected = step(model, rank, (4, 8))
    got = step(torch.compile(model), rank, (4, 8))
    counts = tuple(collops.torch.fused_patterns(reset=True))
    collops.torch.disable_async_tp()
    kept = config.post_grad_custom_post_pass is own_pass
    config.post_grad_custom_post_pass = None
    torch.compiler.reset()
    plain = "_c10d_functional.all_gather_into_tensor.default" in seen
    fused = any("symm_mem" in target for target in seen)
    return [worst(got, expected), counts, kept, plain, fused]


def uneven_layers(x: Any, a: Any, b: Any, bias: Any, rows: list[int], name: str) -> Any:
    whole = torch.ops.collops.all_gatherv(x, rows, 0, name)
    hidden = torch.relu(torch.addmm(bias, whole, a.t()))
    return torch.ops.collops.reduce_scatterv(hidden @ b, rows, 0, "sum", name)


def uneven(rank: int) -> list[Any]:
    """Error and counts of two layers whose rows are shared out as 3 and 1."""
    name, rows = dist.group.WORLD.group_name, [3, 1]
    random = torch.Generator().manual_seed(rank)
    shapes = (rows[rank], 8), (6, 8), (6, 5), (6,)
    inputs = [torch.randn(shape, generator=random) for shape in shapes]
    collops.torch.enable_async_tp()
    collops.torch.fused_patterns(reset=True)
    compiled = torch.compile(uneven_layers, backend=fused_graph_backend(), fullgraph=True)
    got = compiled(*inputs, rows, name)
    error = worst([got], [uneven_layers(*inputs, rows, name)])
    return [error, tuple(collops.torch.fused_patterns())]


def everything(rank: int, folder: str) -> list[list[Any]]:
    # One run of ranks: each imports inductor, which takes seconds.
    there = hasattr(torch.ops.collops, "all_gatherv")
    parts = [with_inductor(rank, folder), graphs_of_layers(rank), graphs_of_programs(rank)]
    return [*parts, uneven(rank) if there else []]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[Any]]]:
    """What everything() returns on each rank."""
    return run_group(everything, 2, str(tmp_path_factory.mktemp("inductor")))


def test_a_parallel_mlp_forward_and_backward(results: list[list[list[Any]]]) -> None:
    for _, layers, *_ in results:
        for error, gathers, scatters in layers:
            assert error <= 1e-5
            # One of each in the forward graph, and one of each in the backward graph.
            assert (gathers, scatters) == (2, 2)


def test_programs_of_functional_collectives(results: list[list[list[Any]]]) -> None:
    for _, _, programs, _ in results:
        for (_, _, counts), (error, plain_error, found) in zip(PROGRAMS, programs, strict=True):
            assert max(error, plain_error) <= 1e-5
            assert found == [counts, (0, 0)]


def test_inductor_runs_it_beside_a_pass_of_the_user(results: list[list[list[Any]]]) -> None:
    for [error, *rest], *_ in results:
        assert error <= 1e-5
        assert rest == [(2, 2), True, True, False]


def test_uneven_shares_are_fused(results: list[list[list[Any]]]) -> None:
    for *_, found in results:
        if not found:
            pytest.skip("torch.ops.collops.all_gatherv is not there")
        error, counts = found
        assert error <= 1e-5
        assert counts == (1, 1)
