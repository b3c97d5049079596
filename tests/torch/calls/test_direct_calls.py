"""Calls of a group itself, in every form that the docstrings of torch's ProcessGroup tell."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch._C import _distributed_c10d as c10d  # noqa: E402

import collops.torch  # noqa: E402
from patience import patience  # noqa: E402
from tests.torch.calls.call_table import data, poison  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402

HAS_HOOKS = hasattr(c10d, "PreHookArgs")  # from torch 2.14 on
ROOT = 1
SPLITS = [[1, 3], [2, 2]]  # of the rows that a rank sends to each rank
BY_NAME = {
    "op": dist.ReduceOp.MAX,
    "root": ROOT,
    "timeout": timedelta(seconds=patience(50)),
    **{"srcRank": 0, "dstRank": 1, "tag": 5, "arg1": 5},
}


OLDER = {
    "_allgather_base": "all_gather_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "alltoall_base": "all_to_all_single",
}
# Those that gloo has not, and those that other tests make.
NOT_GLOOS = ["gather_single", "gather_into_tensor", "reconfigure", "_end_coalescing"]
if torch.__version__ < "2.13":
    NOT_GLOOS.append("alltoall")


class Argument(NamedTuple):
    name: str
    kind: str
    required: bool


class Form(NamedTuple):
    call: str
    arguments: list[Argument]
    by_name: bool


def _arguments(text: str) -> list[Argument]:
    """The arguments of an overload, without self."""
    found = [re.match(r"(\w+): (.*?)( = .*)?$", part) for part in re.split(r", (?=\w+: )", text)]
    return [Argument(one[1], one[2], one[3] is None) for one in found[1:] if one]


def forms() -> list[Form]:
    """Every overload of every method that returns a Work: as short as possible, and in full."""
    found = []
    for name in sorted(dir(dist.ProcessGroup)):
        doc = getattr(dist.ProcessGroup, name).__doc__ or ""
        for text in re.findall(rf"\b{name}\((self: .*)\) -> c10d::Work", doc):
            whole = _arguments(text)
            found += [Form(name, [one for one in whole if one.required], False)]
            found += [Form(name, whole, False)]
            if not any(one.name == "arg0" for one in whole):
                found += [Form(name, whole, True)]
    return [form for form in found if form.call not in NOT_GLOOS]


def _options(kind: str) -> Any:
    options = getattr(c10d, kind.rpartition(".")[2])()
    for name, value in {"rootRank": ROOT, "reduceOp": dist.ReduceOp.MAX}.items():
        if hasattr(options, name):
            setattr(options, name, value)
    return options


def _tensors(call: str, rank: int, root: int) -> list[Any]:
    """What a call takes, all of it in lists; the first item is what it writes."""
    x, y, outs = data(rank, 4), data(rank + 5, 4), [poison(4), poison(4)]
    parts, whole = [x, y], torch.cat([x, y])
    if call in ("send", "recv", "recv_anysource"):
        return [[x]] if call == "send" else [outs[:1]]
    is_root = rank == root
    return {
        "allreduce": [[x]],
        "allreduce_coalesced": [[x, y]],
        "broadcast": [[x]],
        "reduce": [[x]],
        "allgather": [[outs], [x]],
        "allgather_coalesced": [[outs, [poison(4), poison(4)]], [x, y]],
        "all_gather_single": [poison(8), x],
        "all_gather_single_coalesced": [[poison(8), poison(8)], [x, y]],
        "gather": [[outs] if is_root else [], [x]],
        "scatter": [outs[:1], [parts] if is_root else []],
        "reduce_scatter": [outs[:1], [parts]],
        "reduce_scatter_single": [poison(4), whole],
        "reduce_scatter_single_coalesced": [outs, [whole, whole + 1]],
        "alltoall": [outs, parts],
        "all_to_all_single": [poison(3 + 2 * rank), x, [row[rank] for row in SPLITS], SPLITS[rank]],
        "barrier": [],
    }[OLDER.get(call, call)]


def _flat(value: Any) -> list[float]:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [number for one in value for number in _flat(one)]


def _outcome(group: Any, form: Form, rank: int) -> list[float]:
    """What a call writes."""
    names = {one.name for one in form.arguments}
    root = ROOT if names & {"root", "opts"} else 0
    if form.call == "send" and rank == 1:
        received = [poison(4)]
        group.recv_anysource(received, 5).wait()
        return _flat(received)
    if form.call.startswith("recv") and rank == 0:
        group.send([data(7, 4)], 1, 5).wait()
        return []
    tensors = _tensors(form.call, rank, root)
    given = {}
    for number, (name, kind, _) in enumerate(form.arguments):
        if name in BY_NAME:
            given[name] = BY_NAME[name]
        elif kind.endswith("Options"):
            given[name] = _options(kind)
        else:
            given[name] = _unpacked(tensors[number], kind.count("Sequence["))
    method = getattr(group, form.call)
    (method(**given) if form.by_name else method(*given.values())).wait()
    return _flat(tensors[:1]) if form.call != "reduce" or rank == root else []


def _unpacked(value: Any, depth: int) -> Any:
    """The only item of lists, as long as there are more of them than `depth`."""
    while _depth(value) > depth and value:
        [value] = value
    return value


def _depth(value: Any) -> int:
    """How many lists are around a tensor or a number."""
    return 1 + (_depth(value[0]) if value else 1) if isinstance(value, list) else 0


def _outcomes(rank: int) -> list[tuple[Form, list[float]]]:
    return [(form, _outcome(dist.group.WORLD, form, rank)) for form in forms()]


def test_every_form_is_as_gloos() -> None:
    assert len(forms()) > 80
    assert run_group(_outcomes, 2) == run_group(_outcomes, 2, backend="gloo")


def _told(rank: int) -> list[Any]:
    """What hooks are told of every form of every call, and what each call writes."""
    told: list[Any] = []

    def before(args: Any) -> None:
        tensors = [[x.tolist() for x in args.input_tensors], len(args.output_tensors)]
        told.append((args.name.name, *tensors, args.root, args.async_op, args.op_id))

    def after(args: Any) -> None:
        told.append((args.name.name, isinstance(args.work, dist.Work), args.async_op, args.op_id))

    def wrong(args: Any) -> None:
        raise ValueError(f"{args.name.name} {args.op_id}")

    group = dist.group.WORLD
    group.register_pre_hook(1, wrong)
    group.register_pre_hook(1, before)
    group.register_post_hook(1, after)
    told += _outcomes(rank)
    dist.all_reduce(torch.ones(1))  # which is not asynchronous
    group.register_pre_hook(1, wrong)
    for call in (group.allreduce_coalesced, group.allreduce):
        with pytest.raises(ValueError) as caught:
            call([data(rank, 3), data(rank, 3)][: 1 + (call == group.allreduce_coalesced)])
        told.append(str(caught.value))
    for number in (1, 2):  # also one that nobody registered
        group.unregister_pre_hook(number)
        group.unregister_post_hook(number)
    dist.all_reduce(torch.ones(1))
    return told


if HAS_HOOKS:  # with another torch there is no such test

    def test_hooks_are_told_as_gloos() -> None:
        own, gloos = run_group(_told, 2), run_group(_told, 2, backend="gloo")
        assert any("SEND" in line for line in own[0])
        assert own == gloos


def _not_a_number(rank: int) -> list[str]:
    """The errors of calls in which rank 1 has a NaN in what it sends, or in what it does not."""
    found = []
    x, nan = torch.ones(2), torch.tensor([1.0, math.nan])
    own = nan if rank == 1 else x
    dist.all_reduce_coalesced([x.clone(), x.clone()])
    with pytest.raises(RuntimeError, match="NaN found in input tensor, on rank 1"):
        dist.all_reduce_coalesced([x.clone(), own.clone()])
    calls = [
        lambda: dist.all_reduce(own.clone()),
        lambda: dist.broadcast(own.to(torch.complex64), 1),
        lambda: dist.broadcast(own.clone(), 0),
        lambda: dist.all_gather([nan.clone(), nan.clone()], x),
        lambda: dist.all_reduce(own.int()),
    ]
    for call in calls:
        try:
            call()
            found.append("")
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


if HAS_HOOKS:  # and with them the variable

    def test_inputs_are_checked_for_nan() -> None:
        env = {"TORCH_DIST_NAN_CHECK": "1"}
        ranks = run_group(_not_a_number, 2, env=env)
        texts = [
            f"{name}: NaN found in input tensor, on rank 1" for name in ("ALLREDUCE", "BROADCAST")
        ]
        assert ranks[1] == [*(f"RuntimeError: {text}" for text in texts), "", "", ""]
        assert [message.count("NaN found") for message in ranks[0]] == [1, 1, 0, 0, 0]


def _told_after_shrink(rank: int) -> list[Any] | None:
    """What the hooks of a group are told of a sum, and of one with a NaN, without rank 0."""
    told: list[Any] = []
    dist.group.WORLD.register_pre_hook(1, lambda args: told.append(args.name.name))
    dist.group.WORLD.register_post_hook(1, lambda args: told.append(args.async_op))
    if rank == 0:
        return None
    new = collops.torch.shrink(exclude=[0])
    dist.all_reduce(torch.ones(2))
    with pytest.raises(RuntimeError, match="NaN found in input tensor, on rank 1"):
        dist.all_reduce(torch.tensor([math.nan if new.rank() == 1 else 1.0]))
    return told


if HAS_HOOKS:

    def test_hooks_and_the_check_for_nan_are_those_of_the_group_that_shrink_makes() -> None:
        env = {"TORCH_DIST_NAN_CHECK": "1"}
        first = ["ALLREDUCE", False]
        # The check comes before the hook on rank 2, whose error rank 1 gets in its call.
        assert run_group(_told_after_shrink, 3, env=env) == [None, [*first, "ALLREDUCE"], first]


def _unsupported(rank: int) -> list[str]:
    group, found = dist.group.WORLD, []
    for call in (
        group.get_reconfigure_handle,
        lambda: group.reconfigure(None),
        lambda: group.new_window(torch.ones(2)),
        lambda: group.register_abort_hook(1, print),
        *([] if HAS_HOOKS else [lambda: group.register_pre_hook(1, print)]),
    ):
        with pytest.raises(collops.UnsupportedError) as caught:
            call()
        found.append(caught.value.message.partition(":")[0])
    assert not group.supports_reconfigure and not group.supports_window
    assert not group.supports_abort_hooks and not group.supports_completion_hooks
    return found


def test_what_other_backends_have() -> None:
    names = ["reconfigure", "reconfigure", "new_window", "register_abort_hook"]
    last = "a process group has hooks from torch 2.14 on, this is "
    [found] = run_group(_unsupported, 1)
    assert found[:4] == names and all(text.startswith(last) for text in found[4:])


def _gathered_in_one(rank: int) -> list[Any]:
    """Methods that ProcessGroup has from torch 2.14 on, which gloo does not serve."""
    group, options, found = default_group(), dist.GatherOptions(), []
    options.rootRank = ROOT
    for gather in (group.gather_single, group.gather_into_tensor):
        out = poison((2, 2, 3)) if rank == ROOT else torch.empty(0)
        gather(out, data(rank, (2, 3)), options).wait()
        found.append(out.tolist())
    return found


def test_gather_into_one_tensor() -> None:
    whole = torch.stack([data(rank, (2, 3)) for rank in range(2)]).tolist()
    assert run_group(_gathered_in_one, 2) == [[[], []], [whole, whole]]


def _limited(rank: int) -> list[tuple[str, str]]:
    limit = timedelta(seconds=0.2)
    options = dist.AllreduceOptions()
    options.timeout = limit
    calls = [
        lambda group, x: group.allreduce(x, timeout=limit),
        lambda group, x: group.allreduce([x], options),
        lambda group, x: group.broadcast(x, 0, limit),
        lambda group, x: group.barrier(limit),
    ]
    found: list[tuple[str, str]] = []
    for call in calls:
        group = dist.new_group([0, 1])
        if rank == 0:
            with pytest.raises(collops.RankTimeoutError) as caught:
                call(group, torch.ones(2)).wait()
            found += re.findall(r"(\w+): call 1 (timed out after 0.2 s)", caught.value.message)
        dist.barrier()  # of the group of all ranks, whose limit is its own
    return found


def test_a_timeout_is_that_of_the_call() -> None:
    names = ("all_reduce", "all_reduce", "broadcast", "barrier")
    wanted = [(name, "timed out after 0.2 s") for name in names]
    assert run_group(_limited, 2) == [wanted, []]


WRONG = [
    (lambda group: group.allreduce(), "allreduce: the argument 'tensors' is missing"),
    (
        lambda group: group.broadcast([torch.ones(1)], 0, None, 1),
        "broadcast: got 4 arguments, at most 3 are possible",
    ),
    (
        lambda group: group.broadcast([torch.ones(1)], src=0),
        "broadcast: 'src' is none of the arguments",
    ),
    (
        lambda group: group.allreduce([torch.ones(1)], tensor=torch.ones(1)),
        "allreduce: 'tensor' is given twice",
    ),
    (
        lambda group: group.reduce([torch.ones(1)], dist.ReduceOptions(), root=0),
        "reduce: 'root' is given beside opts, which has it",
    ),
]


def _refused(rank: int) -> list[str]:
    found = []
    for call, _ in WRONG:
        with pytest.raises(TypeError) as caught:
            call(dist.group.WORLD)
        found.append(str(caught.value))
    return found


def test_arguments_that_no_form_has() -> None:
    assert run_group(_refused, 1) == [[message for _, message in WRONG]]
