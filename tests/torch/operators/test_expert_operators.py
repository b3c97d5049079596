"""A layer of experts by torch.ops.collops, on several ranks and in one process; compiled, too."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import library as torch_library  # noqa: E402

import collops  # noqa: E402
import collops.torch as ct  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402
from tests.torch.operators.operator_rows import numbers  # noqa: E402
from tests.torch.operators.test_operator_compile import _fresh  # noqa: E402

_EXPERTS, _HIDDEN = 2, 3  # experts of a rank


def _inputs(rank: int, ranks: int, tokens: int = 4) -> tuple[Any, Any, Any]:
    """Tokens, their experts and weights; the last rank has no tokens."""
    count = 0 if rank == ranks - 1 > 0 else tokens + rank
    ids = numbers(50 + rank, count, 3).long() % (ranks * _EXPERTS + 1) - 1
    return numbers(rank, count, _HIDDEN), ids, numbers(70 + rank, count, 3)


def _expert(number: int) -> Any:
    return numbers(90 + number, _HIDDEN, _HIDDEN)


def _layer(x: Any, ids: Any, weights: Any, experts: Any, num_experts: int, group: Any) -> Any:
    rows, counts, routing = ct.moe_dispatch(x, ids, num_experts, group=group)
    parts = zip(rows.split(counts.tolist()), experts, strict=True)
    made = torch.cat([part @ expert for part, expert in parts])
    return ct.moe_combine(made, weights, routing, group=group)


def _in_one_process(x: Any, ids: Any, weights: Any, experts: Any) -> Any:
    y = torch.zeros(x.shape)
    for k in range(ids.shape[1]):
        for e, expert in enumerate(experts):
            y = y + (ids[:, k] == e)[:, None] * weights[:, k : k + 1] * (x @ expert)
    return y


def _same_as_one_process(rank: int, ranks: int) -> list[bool]:
    total = ranks * _EXPERTS
    x, ids, weights = _inputs(rank, ranks)
    own = [_expert(rank * _EXPERTS + i).requires_grad_() for i in range(_EXPERTS)]
    leaves = [x.requires_grad_(), weights.requires_grad_()]
    y = _layer(x, ids, weights, own, total, None)
    (y * numbers(30 + rank, *y.shape)).sum().backward()

    everyone = [_inputs(q, ranks) for q in range(ranks)]
    experts = [_expert(e).requires_grad_() for e in range(total)]
    outs = []
    for x_q, ids_q, weights_q in everyone:
        outs.append(
            _in_one_process(x_q.requires_grad_(), ids_q, weights_q.requires_grad_(), experts)
        )
    loss = sum((out * numbers(30 + q, *out.shape)).sum() for q, out in enumerate(outs))
    loss.backward()
    whole = [everyone[rank][0], everyone[rank][2], *experts[rank * _EXPERTS :][:_EXPERTS]]
    pairs = zip([*leaves, *own], whole, strict=True)
    return [torch.equal(y, outs[rank]), *(torch.equal(a.grad, b.grad) for a, b in pairs)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_results_and_gradients_are_those_of_one_process(ranks: int) -> None:
    assert run_group(_same_as_one_process, ranks, ranks) == [[True] * 5] * ranks


def _without_weights(rank: int) -> list[bool]:
    """The gradient of a dispatch, of a combine, and theirs."""
    x, ids, _ = _inputs(rank, 3)
    rows, _, routing = ct.moe_dispatch(x.requires_grad_(), ids, 6)
    y = ct.moe_combine(rows**3, None, routing)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    first.sum().backward()
    copies = (ids >= 0).sum(1, keepdim=True)
    with torch.no_grad():
        return [torch.equal(y, copies * x**3), torch.equal(x.grad, copies * 6 * x)]


def test_a_gradient_has_a_gradient() -> None:
    assert run_group(_without_weights, 3) == [[True] * 2] * 3


def _refused(rank: int) -> list[str]:
    x, ids, weights = _inputs(0, 2)
    rows, _, routing = ct.moe_dispatch(x, ids, 4)
    y = ct.moe_combine(rows, weights.requires_grad_(), routing)
    (first,) = torch.autograd.grad((y**2).sum(), weights, create_graph=True)
    found = []
    for call in (
        lambda: first.sum().backward(),
        lambda: ct.moe_combine(rows, weights, routing, out=torch.empty_like(x)),
    ):
        with pytest.raises(collops.UnsupportedError) as caught:
            call()
        found.append(caught.value.message)
    return found


def test_what_has_no_gradient_says_so() -> None:
    second = "moe_combine with topk_weights has no second gradient: multiply the rows by them"
    into = "moe_combine: gradients do not pass a call with out="
    for found in run_group(_refused, 2):
        assert found[0].startswith(second) and found[1].startswith(into)


def _opcheck(rank: int) -> list[str]:
    _fresh()
    name = default_group().group_name
    x, ids, weights = _inputs(rank, 3)
    rows, _, *routing = torch.ops.collops.moe_dispatch(x, ids, 6, name)
    floats = [x.requires_grad_(), rows.requires_grad_(), weights.requires_grad_()]
    calls = [
        ("moe_dispatch", (floats[0], ids, 6)),
        ("moe_combine", (floats[1], floats[2], *routing)),
        ("moe_combine", (floats[1], None, *routing)),
        ("_moe_dispatch_again", (floats[0], *routing, rows.shape[0])),
    ]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    wrong = []
    for operator, args in calls:
        packet = getattr(torch.ops.collops, operator).default
        done = torch_library.opcheck(
            packet,
            (*args, name),
            test_utils=(*tests, "test_aot_dispatch_dynamic"),
            raise_exception=False,
        )
        wrong += [f"{operator}: {test}: {end}" for test, end in done.items() if end != "SUCCESS"]
    out = torch.empty(x.shape)
    torch.ops.collops.moe_combine.out(rows.detach(), None, *routing, name, out=out)
    copies = (ids >= 0).sum(1, keepdim=True)
    return wrong if torch.equal(out, copies * x) else [*wrong, "out"]


def test_opcheck_finds_nothing() -> None:
    assert run_group(_opcheck, 3) == [[]] * 3


def _compiled(rank: int, backend: str) -> list[bool]:
    _fresh()
    expert = _expert(0)

    def layer(x: Any, ids: Any, weights: Any) -> Any:
        rows, counts, routing = ct.moe_dispatch(x, ids, 4)
        # A product, of which inductor makes no C++.
        return ct.moe_combine(rows.mm(expert), weights, routing), counts

    work = torch.compile(layer, fullgraph=True, backend=backend)
    found = []
    for tokens in (4, 7, 5):
        ends = []
        for call in (work, layer):
            x, ids, weights = _inputs(rank, 3, tokens)
            ids = ids.clamp(max=3)
            if backend == "aot_eager":
                y, counts = call(x.requires_grad_(), ids, weights.requires_grad_())
                y.sum().backward()
                ends.append([y, counts, x.grad, weights.grad])
            else:
                ends.append([*call(x, ids, weights)])
        found.append(all(torch.equal(a, b) for a, b in zip(*ends, strict=True)))
    return found


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_layers_do_the_same(backend: str) -> None:
    assert run_group(_compiled, 2, backend) == [[True] * 3] * 2


def _products(x: Any, weight: Any, sends: Any, blocks: Any, wide: Any, int8: Any) -> list[Any]:
    # Nothing but calls, of which inductor makes no C++.
    rows = ct.all_to_allv_grouped_matmul(x, weight, sends)
    back = ct.grouped_matmul_all_to_allv(rows, weight, sends, trans_weight=True)
    there = ct.all_to_all_matmul(blocks, wide)
    *both, scale = int8
    exact = ct.all_to_allv_grouped_matmul(*both, sends, scale=scale, out_dtype=torch.float16)
    return [back, ct.matmul_all_to_all(there, wide, trans_weight=True), exact]


def _compiled_products(rank: int, backend: str) -> list[bool]:
    _fresh()
    work = torch.compile(_products, fullgraph=True, backend=backend)
    found = []
    for tokens in (4, 7, 5):
        sends = numbers(tokens + rank, 2, _EXPERTS).long().abs()
        ends = []
        for call in (work, _products):
            args = [numbers(1 + rank, int(sends.sum()), _HIDDEN), numbers(9, 2, _HIDDEN, _HIDDEN)]
            args += [sends, numbers(rank, 2 * tokens, _HIDDEN), numbers(7, 2 * _HIDDEN, 4)]
            leaves = [a for a in args if a.is_floating_point()]
            args += [(*(a.to(torch.int8) for a in args[:2]), args[1][:, 0].contiguous())]
            if backend == "aot_eager":
                [leaf.requires_grad_() for leaf in leaves]
            ends.append(call(*args))
            if backend == "aot_eager":
                sum((out.float() ** 2).sum() for out in ends[-1]).backward()
                ends[-1] += [leaf.grad for leaf in leaves]
        found.append(all(torch.equal(a, b) for a, b in zip(*ends, strict=True)))
    return found


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_products_do_the_same(backend: str) -> None:
    assert run_group(_compiled_products, 2, backend) == [[True] * 3] * 2


def _without(rank: int) -> list[str]:
    """What has no gradient, or no second one."""
    counts, one = [[[1], [2]], [[2], [1]]][rank], torch.ones(1, 1)
    x, scale = torch.ones(3, 1).requires_grad_(), one.clone().requires_grad_()
    quantised = x.detach().to(torch.int8), one[None].to(torch.int8), counts
    y = ct.all_to_allv_grouped_matmul(x, one[None], counts)
    (first,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
    found = []
    for call in (
        lambda: ct.grouped_matmul_all_to_allv(*quantised, scale=scale).sum().backward(),
        lambda: first.sum().backward(),
        lambda: ct.all_to_all_matmul(x[:2], torch.ones(2, 1), out=torch.empty(1, 1)),
        lambda: ct.grouped_matmul_all_to_allv(x, one[None], counts, out=torch.empty(3, 1)),
    ):
        with pytest.raises(collops.UnsupportedError) as caught:
            call()
        found.append(caught.value.message.partition(":")[0])
    return found


def test_products_without_a_gradient_say_so() -> None:
    wanted = ["grouped_matmul_all_to_allv", "the grouped products have no second gradient"]
    assert run_group(_without, 2) == [[*wanted, "all_to_all_matmul", wanted[0]]] * 2


def _ragged(rank: int) -> str:
    counts = [[[1], [1, 2]], [[1], [1]]][rank]
    with pytest.raises(collops.Error) as caught:
        ct.all_to_allv_grouped_matmul(torch.ones(2, 1), torch.ones(1, 1, 1), counts)
    return caught.value.message


def test_all_ranks_hear_of_counts_that_are_no_table() -> None:
    words = "send_sizes must be whole numbers [ranks, experts], a line per rank, got [[1], [1, 2]]"
    for found in run_group(_ragged, 2):
        assert words in found
