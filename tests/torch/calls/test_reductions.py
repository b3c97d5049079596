"""The core's reduction for each of torch's, however its name is given."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = torch.distributed

from collops.torch.reductions import reduction_of  # noqa: E402
from tests.torch.groups import default_group, run_group  # noqa: E402

_KINDS = dist.ReduceOp.RedOpType


@pytest.mark.parametrize("name", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"])
def test_a_bare_name_is_as_good_as_the_object(name: str) -> None:
    kind = getattr(_KINDS, name)
    for dtype in (torch.int32, torch.float32):
        bare, whole = (reduction_of("reduce", op, dtype) for op in (kind, dist.ReduceOp(kind)))
        assert bare == whole


def _group_calls(rank: int) -> list[int]:
    group, found = default_group(), []
    for kind in (_KINDS.SUM, _KINDS.MAX, _KINDS.BOR):
        options: Any = dist.AllreduceOptions()
        options.reduceOp = kind
        x = torch.tensor([rank + 1])
        group.allreduce([x], options).wait()
        found.append(x.item())
    return found


def test_a_method_of_the_group_takes_a_bare_name() -> None:
    assert run_group(_group_calls, 2) == [[3, 2, 3]] * 2
