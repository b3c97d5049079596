"""torch.ops.collops under opcheck, torch.compile(fullgraph=True) and torch.export.

Inductor gets graphs of which it makes no C++, but for one slow test: a kernel takes tens of seconds
to build.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import library as torch_library  # noqa: E402

import collops  # noqa: E402
import collops.torch as ct  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402
from tests.torch.operators.operator_rows import Row, numbers, rows_for  # noqa: E402

_SIZES = [2, 3]
_BACKENDS = ("aot_eager", "inductor")
_PARTS = 3  # of the rows, each within the time limit of a test


def _fresh() -> None:
    """Inductor's files of this rank alone, and no process that compiles beside it."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    torch._inductor.config.compile_threads = 1
    torch._dynamo.reset()


def _compiled(work: Callable[..., Any], backend: str) -> Any:
    torch._dynamo.reset()
    return torch.compile(work, fullgraph=True, backend=backend)


def _opcheck(row: Row, rank: int, with_out: bool) -> list[str]:
    args = row.args(rank, 2)
    packet = getattr(torch.ops.collops, row.operator)
    all_args = (*args, default_group().group_name, *row.options(2))
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    tests.append("test_aot_dispatch_dynamic")
    # Its graph has one fixed shape, and that of a result whose rows the ranks tell is not known.
    tests += ["test_aot_dispatch_static"] if row.known else []
    words = {}
    if with_out:
        words["out"] = torch.empty_like(packet.default(*all_args))
    else:
        for a in args:
            if isinstance(a, torch.Tensor) and a.is_floating_point():
                a.requires_grad_()
    operator = packet.out if with_out else packet.default
    done = torch_library.opcheck(operator, all_args, words, test_utils=tests, raise_exception=False)
    title = f"{operator} {row.title}"
    return [f"{title}: {test}: {end}" for test, end in done.items() if end != "SUCCESS"]


def _opcheck_part(rank: int, part: int) -> list[str]:
    _fresh()
    all_rows = rows_for(2)
    first = {row.operator: row for row in reversed(all_rows)}.values()
    # One row of each operator with leaves: they differ in numbers alone.
    in_leaves = {row.operator: row for row in all_rows if row.options(2)}.values()
    rows = [(row, False) for row in (*(r for r in all_rows if not r.options(2)), *in_leaves)]
    rows += [(row, True) for row in first]
    own = rows[part::_PARTS]
    return [end for row, with_out in own for end in _opcheck(row, rank, with_out=with_out)]


@pytest.mark.parametrize("part", range(_PARTS))
def test_opcheck_finds_nothing(part: int) -> None:
    assert run_group(_opcheck_part, 2, part) == [[]] * 2


def _layer(x: Any, weight: Any, sizes: Any, group: Any) -> Any:
    gathered = ct.all_gatherv(x, sizes, group=group)
    product = ct.all_gather_matmul(x, weight, sizes, group=group)
    total = ct.matmul_all_reduce(gathered, weight, group=group)
    scattered = ct.matmul_reduce_scatter(gathered, weight, sizes, group=group)
    return torch.mm(gathered, weight), product, total, scattered


def _gradients(work: Any, rank: int, sizes: Any, group: Any) -> list[Any]:
    x = numbers(rank, sizes[rank], 3).requires_grad_()
    weight = numbers(9 + rank, 3, 2).requires_grad_()
    outs = work(x, weight, sizes, group)
    sum(out.sum() * (i + 1) for i, out in enumerate(outs)).backward()
    return [*outs, x.grad, weight.grad]


def _results(work: Any, rank: int, sizes: Any, group: Any) -> list[Any]:
    return list(work(numbers(rank, sizes[rank], 3), numbers(9 + rank, 3, 2), sizes, group))


def _same(got: list[Any], wanted: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def _compile_with_groups(rank: int) -> list[bool]:
    _fresh()
    group = default_group()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    wanted = _gradients(_layer, rank, _SIZES, None)
    found = []
    for way in (None, group, group.group_name, mesh, group.communicator):
        got = _gradients(_compiled(_layer, "aot_eager"), rank, _SIZES, way)
        found.append(_same(got, wanted))
        got = _results(_compiled(_layer, "inductor"), rank, _SIZES, way)
        found.append(_same(got, wanted[:4]))
    return found


def test_compiled_code_takes_groups_of_every_kind() -> None:
    assert run_group(_compile_with_groups, 2) == [[True] * 10] * 2


def _changing(rank: int, run: Callable[..., list[Any]], backend: str) -> list[bool]:
    _fresh()
    graphs: list[Any] = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    work = torch.compile(_layer, fullgraph=True, backend=counted)
    found = []
    for sizes in ([2, 3], [4, 2], [3, 5], [0, 4], [1, 0], [6, 7]):
        found.append(_same(run(work, rank, sizes, None), run(_layer, rank, sizes, None)))
    return [*found, len(graphs) < 6]


@pytest.mark.parametrize("backend", _BACKENDS)
def test_sizes_may_change_from_call_to_call(backend: str) -> None:
    run = _gradients if backend == "aot_eager" else _results
    assert run_group(_changing, 2, run, backend) == [[True] * 7] * 2


def _told_gather(x: Any) -> Any:
    gathered = ct.all_gatherv(x)
    return gathered.mm(gathered.T)


def _told_exchange(x: Any) -> Any:
    back = ct.all_to_allv(x, [1, x.shape[0] - 1])
    return back.mm(back.T)


def _without_sizes(rank: int) -> list[bool]:
    _fresh()
    found = []
    for told in (_told_gather, _told_exchange):
        for backend in _BACKENDS:
            work = _compiled(told, backend)
            for rows in (3, 5, 4):
                ends = []
                for call in (work, told):
                    x = numbers(rank, rows + rank, 2)
                    if backend == "aot_eager":
                        out = call(x.requires_grad_())
                        out.sum().backward()
                        ends.append([out, x.grad])
                    else:
                        ends.append([call(x)])
                found.append(_same(*ends))
    return found


def test_sizes_may_be_told_while_compiled_code_runs() -> None:
    assert run_group(_without_sizes, 2) == [[True] * 12] * 2


def _out(rank: int, backend: str) -> list[bool]:
    _fresh()

    def work(x: Any, out: Any) -> Any:
        ct.all_gatherv(x, _SIZES, out=out)
        return out.mm(out.T)

    x, out = numbers(rank, _SIZES[rank], 2), torch.empty(5, 2)
    product = _compiled(work, backend)(x, out)
    wanted = ct.all_gatherv(x, _SIZES)
    return [torch.equal(out, wanted), torch.equal(product, wanted.mm(wanted.T))]


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_code_writes_into_memory_of_the_caller(backend: str) -> None:
    assert run_group(_out, 2, backend) == [[True] * 2] * 2


class _Module(torch.nn.Module):
    def __init__(self, sizes: list[int] | None) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, x: Any) -> Any:
        return ct.all_gatherv(x * 2, self.sizes)


def _exported(rank: int) -> list[Any]:
    _fresh()
    found: list[Any] = []
    for sizes in (_SIZES, None):
        x = numbers(rank, _SIZES[rank], 2)
        program = torch.export.export(_Module(sizes), (x,))
        found.append(torch.equal(program.module()(x), _Module(sizes)(x)))
        found += [str(n.target) for n in program.graph.nodes if "collops" in str(n.target)]
    return found


def test_a_module_can_be_exported() -> None:
    assert run_group(_exported, 2) == [[True, "collops.all_gatherv.default"] * 2] * 2


def _errors(rank: int) -> list[Any]:
    _fresh()
    found = []
    for backend in _BACKENDS:
        for sizes, name in ((_SIZES, "nobody"), ([9, 9], None), ([2, 3, 5], None)):
            work = _compiled(lambda x, sizes, group: ct.all_gatherv(x, sizes, group=group), backend)
            with pytest.raises(collops.ArgumentError) as caught:
                work(numbers(rank, _SIZES[rank], 2), sizes, name)
            found.append(caught.value.message)
        work = _compiled(lambda x, sizes: ct.reduce_scatterv(x, sizes), backend)
        with pytest.raises(collops.RankMismatchError):
            work(numbers(rank, 5, 2), [[2, 3], [3, 2]][rank])
    return found


def test_errors_keep_their_class_through_compiled_code() -> None:
    def wanted(rank: int) -> list[str]:
        return [
            "there is no group named 'nobody': it was not made in this process, or is destroyed",
            f"all_gatherv: sizes[{rank}] is 9, but x has {_SIZES[rank]} rows on rank {rank}",
            "all_gatherv: sizes must have length 2, one per rank, got 3",
        ] * 2

    assert run_group(_errors, 2) == [wanted(0), wanted(1)]
