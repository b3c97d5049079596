"""Calls of a group itself, in every form that the docstrings of torch's ProcessGroup tell."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from call_table import data, poison  # noqa: E402
from groups import default_group, run_group  # noqa: E402
from torch._C import _distributed_c10d as c10d  # noqa: E402

import collops  # noqa: E402
from patience import patience  # noqa: E402

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
    return [form for form in found if form.call != "_end_coalescing"]


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
        "gather_single": [poison(8), x] if is_root else [poison(0), x],
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


def _outcomes(rank: int) -> list[list[float]]:
    return [_outcome(dist.group.WORLD, form, rank) for form in forms()]


def test_every_form_is_as_gloos() -> None:
    own, gloos = run_group(_outcomes, 2), run_group(_outcomes, 2, backend="gloo")
    assert len(forms()) > 80
    for rank in range(2):
        assert list(zip(forms(), own[rank], strict=True)) == list(
            zip(forms(), gloos[rank], strict=True)
        )


def _gathered_in_one(rank: int) -> list[float]:
    """A method that ProcessGroup has from torch 2.15 on."""
    out = poison((2, 2, 3)) if rank == ROOT else torch.empty(0)
    options = dist.GatherOptions()
    options.rootRank = ROOT
    default_group().gather_single(out, data(rank, (2, 3)), options).wait()
    return out.tolist()


def test_gather_into_one_tensor() -> None:
    whole = torch.stack([data(rank, (2, 3)) for rank in range(2)])
    assert run_group(_gathered_in_one, 2) == [[], whole.tolist()]


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
