"""Operation.prepack: which calls take the packed weight, and for how long.

PURE_LINEAR waits for nobody. That a call took the packed copy shows when the weight's own values
have changed since, which a caller must not do.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import collops

FIELDS: dict[str, Any] = {"rank": 0, "rank_size": 2, "backend": "shm", "type": 3}
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def operation(**fields: Any) -> collops.Operation:
    return collops.Operation(collops.LinearParallelParam(**{**FIELDS, **fields}))


def product(op: collops.Operation, weight: Any, x: Any = X) -> Any:
    return op.forward([x, weight])[0].tolist()


def square() -> Any:
    return np.arange(16, dtype=np.float32).reshape(4, 4)


@pytest.mark.parametrize("trans_weight", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("leaves", [0, 3])
def test_results_do_not_depend_on_prepack(trans_weight: bool, dtype: Any, leaves: int) -> None:
    op = operation(trans_weight=trans_weight, sum_leaves=leaves)
    weight = (np.arange(4 * 7) % 5 - 2).astype(dtype).reshape((7, 4) if trans_weight else (4, 7))
    plain = product(op, weight, X.astype(dtype))
    op.prepack(weight)
    assert product(op, weight, X.astype(dtype)) == plain
    assert plain == (X @ (weight.T if trans_weight else weight)).tolist()


def test_the_same_memory_is_the_packed_weight_and_another_is_not() -> None:
    op, weight = operation(), square()
    before = (X @ weight.T).tolist()
    op.prepack(weight)
    weight += 1
    assert product(op, weight) == before
    assert product(op, weight.copy()) == (X @ weight.T).tolist()
    assert product(op, weight[:3]) == (X @ weight[:3].T).tolist()
    op.prepack(weight)
    assert product(op, weight) == (X @ weight.T).tolist()


def test_update_keeps_it_unless_it_is_read_in_another_order() -> None:
    op, weight = operation(), square()
    before = (X @ weight.T).tolist()
    op.prepack(weight)
    weight += 1
    op.update(collops.LinearParallelParam(**FIELDS, comm_domain="another"))
    assert product(op, weight) == before
    op.update(collops.LinearParallelParam(**FIELDS, sum_leaves=3))
    assert product(op, weight) == (X @ weight.T).tolist()
    op.update(collops.LinearParallelParam(**FIELDS, trans_weight=False))
    assert product(op, weight) == (X @ weight).tolist()


def test_the_weight_is_kept_alive() -> None:
    op = operation()
    first, second = square(), square()
    watched = weakref.ref(first)
    op.prepack(first)
    del first
    gc.collect()
    assert watched() is not None
    op.prepack(second)
    gc.collect()
    assert watched() is None
