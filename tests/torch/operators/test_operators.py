"""collops.torch.all_gatherv and the other wrappers: groups, memory, element types, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = torch.distributed

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import collops  # noqa: E402
import collops.torch as ct  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402
from tests.torch.operators.operator_rows import numbers, rows_for  # noqa: E402

_SIZES = [2, 1]


def _x(rank: int) -> Any:
    return torch.arange(_SIZES[rank]) + 10 * rank


def _groups(rank: int) -> list[Any]:
    from torch.distributed.device_mesh import init_device_mesh

    group = default_group()
    part = group.communicator.split(0)
    second = dist.new_group([0, 1])
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    ways = (None, group, group.group_name, group.communicator, part, second, mesh["tp"])
    return [ct.all_gatherv(_x(rank), _SIZES, group=way).tolist() for way in ways]


def test_a_group_may_be_given_in_every_way() -> None:
    assert run_group(_groups, 2) == [[[0, 1, 10]] * 7] * 2


def _out(rank: int) -> list[str]:
    """Writes every row's result into memory of the caller; what differs."""
    wrong = []
    name = default_group().group_name
    for row in rows_for(2):
        args = row.args(rank, 2)
        packet = getattr(torch.ops.collops, row.operator)
        args = [*args, name, *row.options(2)]
        wanted = packet.default(*args)
        out = torch.full_like(wanted, -99)
        if packet.out(*args, out=out) is not None or not torch.equal(out, wanted):
            wrong.append(f"{row.operator} {row.title}: {out} is not {wanted}")
    return wrong


def test_a_result_is_written_into_memory_of_the_caller() -> None:
    assert run_group(_out, 2) == [[]] * 2


def _wrapped(rank: int) -> list[Any]:
    """Calls of the wrappers, with and without `out`, against the communicator's."""
    comm = default_group().communicator
    x, weight, bias = numbers(rank, 3, 3), numbers(10 + rank, 3, 2), numbers(20, 2)
    grid = {"ag_dim": 1, "rs_dim": 2, "inner_dim_is_ag": False}
    counts = [[[1], [2]], [[2], [1]]][rank]
    int8 = x.to(torch.int8), weight[None].to(torch.int8), counts
    quant = {"scale": numbers(3, 1, 2)}
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("all_gatherv", (x,), {"sizes": [3, 3], "dim": 1}),
        ("reduce_scatterv", (x,), {"sizes": [1, 2], "dim": 1, "op": "max"}),
        ("all_to_allv", (x, [1, 2], [[1, 1], [2, 2]][rank]), {}),
        ("all_reduce", (x,), {"op": "min"}),
        ("all_gather_matmul", (x, weight), {"sizes": [3, 3], "residual": bias}),
        ("matmul_reduce_scatter", (x, weight.T.contiguous()), {"trans_weight": True, "op": "avg"}),
        ("all_gather_matmul_reduce_scatter", (x, weight), {"scatter_rows": [3, 0], **grid}),
        ("matmul_all_reduce", (x, weight), {"residual": bias}),
        ("matmul", (x, weight), {"residual": bias}),
        ("matmul", (x, weight), {"leaves": 3}),
        ("matmul_all_reduce", (x, weight), {"leaves": 2}),
        ("matmul_reduce_scatter", (x, weight), {"leaves": 6, "sum_columns": [3, 3]}),
        ("all_gather_matmul", (x, weight), {"leaves": 2}),
        ("all_gather_matmul_reduce_scatter", (x, weight), {"leaves": 2, **grid}),
        ("all_to_all_matmul", (x.T[:2].contiguous(), numbers(1, 6, 2)), {"residual": bias}),
        ("matmul_all_to_all", (x, weight), {"residual": bias[:1]}),
        ("all_to_allv_grouped_matmul", (x, weight[None], counts), {"max_rows": 9}),
        ("grouped_matmul_all_to_allv", (x, weight[None], counts), {"residual": bias}),
        (
            "all_to_allv_grouped_matmul",
            int8,
            {"out_dtype": torch.bfloat16, "x_scale": x[0], **quant},
        ),
        ("grouped_matmul_all_to_allv", int8, quant),
    ]
    found = []
    for name, args, words in calls:
        wanted = getattr(comm, name)(*args, **words)
        got = getattr(ct, name)(*args, **words)
        out = torch.empty_like(wanted)
        found += [torch.equal(got, wanted), getattr(ct, name)(*args, **words, out=out) is out]
        found.append(torch.equal(out, wanted))
    return found


def test_wrappers_do_what_the_communicator_does() -> None:
    assert run_group(_wrapped, 2) == [[True] * 60] * 2


class _Seen(TorchDispatchMode):
    """Lists the operators of a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), words: Any = None) -> Any:
        self.names.append(str(call))
        return call(*args, **(words or {}))


def _listened_to(rank: int) -> list[Any]:
    x, weight = numbers(rank, 3, 3), numbers(10 + rank, 3, 2)
    calls = [
        lambda: ct.all_gatherv(x, [3, 3]),
        lambda: ct.matmul_all_reduce(x, torch.nn.Parameter(weight)),
    ]
    found = []
    with torch.no_grad(), _Seen() as seen:
        ct.all_reduce(x, out=torch.empty_like(x))
    found.append(seen.names[-1])
    for call in calls:
        with torch.no_grad(), _Seen() as seen:
            call()
        with torch.no_grad(), torch.profiler.profile() as profile:
            call()
        graph = torch.jit.trace(lambda y: ct.all_reduce(y), (x,), check_trace=False).graph
        noted = {event.name for event in profile.events()}
        found += [seen.names[-1], sorted(name for name in noted if name.startswith("collops"))]
        found += ["collops::all_reduce" in str(graph), call().requires_grad]
    return [*found, torch.equal(torch.vmap(lambda y: ct.all_reduce(y))(x), ct.all_reduce(x))]


def test_what_notes_operators_sees_them() -> None:
    """A call of the functions goes past torch's dispatcher only where nobody would know."""
    gathered = "collops.all_gatherv.default", ["collops::all_gatherv"], True, False
    reduced = "collops.matmul_all_reduce.default", ["collops::matmul_all_reduce"], True, True
    assert run_group(_listened_to, 2) == [["collops.all_reduce.out", *gathered, *reduced, True]] * 2


def _kinds(rank: int) -> list[Any]:
    x = numbers(rank, 2, 3)
    found = []
    for kind in (torch.bool, torch.int8, torch.bfloat16, torch.complex64):
        own = x.to(kind)
        want = torch.cat([numbers(0, 2, 3).to(kind), numbers(1, 2, 3).to(kind)])
        found.append(torch.equal(ct.all_gatherv(own, [2, 2]), want))
    conjugate = torch.complex(x, x + 1).conj()
    want = torch.cat([torch.complex(y, -y - 1) for y in (numbers(0, 2, 3), numbers(1, 2, 3))])
    found.append(torch.equal(ct.all_gatherv(conjugate), want))
    found.append(torch.equal(ct.all_gatherv(x.T, dim=0), ct.all_gatherv(x.T.contiguous())))
    weight = numbers(5, 2, 3).T
    found.append(torch.equal(ct.matmul_all_reduce(x, weight), ct.all_reduce(x @ weight)))
    return found


def test_any_strides_and_element_types() -> None:
    assert run_group(_kinds, 2) == [[True] * 7] * 2


def _in_order(rank: int) -> list[float]:
    x = torch.tensor([rank + 1.0])
    work = dist.all_reduce(x, async_op=True)
    gathered = ct.all_gatherv(torch.tensor([float(rank)]), [1, 1])
    work.wait()
    return [*gathered.tolist(), x.item()]


def test_a_call_comes_after_those_started_before() -> None:
    assert run_group(_in_order, 2) == [[0.0, 1.0, 3.0]] * 2


def _refused(call: Any) -> tuple[str, str]:
    with pytest.raises(collops.Error) as caught:
        call()
    return type(caught.value).__name__, caught.value.message


def _errors(rank: int) -> list[Any]:
    from torch.distributed.device_mesh import init_device_mesh

    x, name = _x(rank), default_group().group_name
    mesh, gloo = init_device_mesh("cpu", (1, 2)), dist.new_group([0, 1], backend="gloo")
    second = dist.new_group([0, 1])
    second_name = second.group_name
    ct.all_gatherv(x, _SIZES, group=second)
    dist.destroy_process_group(second)
    leaf = torch.ones(1, requires_grad=True)
    return [
        _refused(lambda: ct.all_gatherv(x, group="nobody")),
        _refused(lambda: torch.ops.collops.all_gatherv(x, _SIZES, 0, "collops/1")),
        _refused(lambda: ct.all_gatherv(x, group=second_name))[1].replace(second_name, "NAME"),
        _refused(lambda: ct.all_gatherv(x, group=gloo))[1].replace(gloo.group_name, "NAME"),
        _refused(lambda: ct.all_gatherv(x, group=mesh)),
        _refused(lambda: ct.all_gatherv(x, group=7)),
        _refused(lambda: ct.all_gatherv(leaf, [1, 1], out=torch.empty(2))),
        _refused(lambda: torch.ops.collops.all_gatherv(x, [1, 1, 1], 0, name)),
    ]


def test_errors_say_what_is_wrong() -> None:
    wanted = [
        (
            "ArgumentError",
            "there is no group named 'nobody': it was not made in this process, or is destroyed",
        ),
        (
            "ArgumentError",
            "there is no communicator named 'collops/1': nothing in this process holds it",
        ),
        "there is no group named 'NAME': it was not made in this process, or is destroyed",
        "group 'NAME' runs on gloo: make one with new_group(ranks, backend=\"collops\")",
        ("ArgumentError", "group: a mesh must have 1 dim, got one of 2: pass mesh[name]"),
        (
            "ArgumentError",
            "group must be a group of torch.distributed, a communicator, a mesh, a name or None, "
            "got int",
        ),
        (
            "UnsupportedError",
            "all_gatherv: gradients do not pass a call with out=: leave it out, pass .detach(), "
            "or call under torch.no_grad()",
        ),
        ("ArgumentError", "all_gatherv: sizes must have length 2, one per rank, got 3"),
    ]
    assert run_group(_errors, 2) == [wanted] * 2


def _of_wrong_types(rank: int) -> list[Any]:
    x, leaf = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    calls: list[Any] = [
        lambda: ct.all_gatherv(x.numpy(), [2, 2]),
        lambda: ct.all_reduce([x]),
        lambda: ct.all_gatherv(leaf, [2.5, 2]),
        lambda: ct.all_gatherv(leaf, [2, 2], "0"),
        lambda: ct.matmul_reduce_scatter(x, None),
        lambda: ct.all_gather_matmul(x, x.numpy(), [2, 2]),
        lambda: ct.all_gather_matmul(leaf, x, [2, 2], leaves=0.5),
        lambda: ct.matmul(x, x, residual=[1, 2]),
        lambda: ct.moe_dispatch(x, [0, 1], 2),
    ]
    found = [_refused(call) for call in calls]
    return [*found, ct.all_gatherv(x, [2, 2]).shape == (4, 2)]  # the group goes on


def test_arguments_of_wrong_types_are_told_in_our_words() -> None:
    """torch's dispatcher would say of each twice that no schema matches."""
    tensor = "must be a torch.Tensor, got"
    wanted = [
        f"all_gatherv: x {tensor} ndarray: pass torch.from_numpy(x)",
        f"all_reduce: x {tensor} list",
        "all_gatherv: sizes must be a list of whole numbers, got [2.5, 2]",
        "all_gatherv: dim must be a whole number, got '0'",
        f"matmul_reduce_scatter: weight {tensor} NoneType",
        f"all_gather_matmul: weight {tensor} ndarray: pass torch.from_numpy(weight)",
        "all_gather_matmul: leaves must be a whole number, got 0.5",
        f"matmul: residual {tensor} list",
        f"moe_dispatch: topk_ids {tensor} list",
    ]
    assert (
        run_group(_of_wrong_types, 2) == [[*(("ArgumentError", one) for one in wanted), True]] * 2
    )


def _without_sizes(rank: int) -> list[bool]:
    """Products whose ranks tell each other their rows, against those with sizes, and gradients."""
    grid = {"ag_dim": 2, "rs_dim": 1}
    calls: list[tuple[Any, dict[str, Any]]] = [
        (ct.all_gather_matmul, {"sizes": [1, 3]}),
        (ct.all_gather_matmul_reduce_scatter, {"gather_rows": [1, 3], **grid}),
    ]
    found = []
    for call, given in calls:
        results = []
        for words in (given, {name: given[name] for name in given if name in grid}):
            x = numbers(rank, 2 * rank + 1, 3).requires_grad_()
            out = call(x, numbers(5, 3, 2), **words)
            (out * numbers(rank, 4, 2)).sum().backward()
            results.append((out, x.grad))
        found += [torch.equal(one, other) for one, other in zip(*results, strict=True)]
    return found


def test_products_without_sizes_exchange_their_rows() -> None:
    assert run_group(_without_sizes, 2) == [[True] * 4] * 2


def test_a_call_without_a_group_says_so() -> None:
    with pytest.raises(collops.ArgumentError, match="there is no default group"):
        ct.all_gatherv(torch.ones(1))
