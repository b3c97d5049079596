"""The reductions of torch.distributed, as calls of the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp

from collops.errors import ErrorCode, raise_status
from collops.torch.devices.kinds import kind_of

_Kind = ReduceOp.RedOpType
_NAMES = {
    _Kind.SUM: "sum",
    _Kind.AVG: "avg",
    _Kind.PRODUCT: "prod",
    _Kind.MIN: "min",
    _Kind.MAX: "max",
    _Kind.BAND: "band",
    _Kind.BOR: "bor",
    _Kind.BXOR: "bxor",
}
# Of truth values, which travel as bytes 0 and 1.
_BOOL_NAMES = {
    _Kind.SUM: "max",
    _Kind.MAX: "max",
    _Kind.BOR: "max",
    _Kind.PRODUCT: "min",
    _Kind.MIN: "min",
    _Kind.BAND: "min",
    _Kind.BXOR: "bxor",
}


_OF_COMPLEX = (_Kind.SUM, _Kind.AVG, _Kind.PREMUL_SUM)


class Reduction(NamedTuple):
    """How the core makes a reduction.

    Attributes:
        name: the core's reduction.
        prepare: makes what this rank gives to the core of its input; None: the input itself.
        after: changes the core's result in place; None: nothing.
    """

    name: str
    prepare: Callable[[torch.Tensor], torch.Tensor] | None = None
    after: Callable[[torch.Tensor], object] | None = None


_PLAIN = {kind: Reduction(name) for kind, name in _NAMES.items()}
_PLAIN_SUM, _SUM = _PLAIN[_Kind.SUM], ReduceOp.SUM
_SUMMED = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64})


def reduction_of(call: str, op: Any, dtype: torch.dtype) -> Reduction:
    """The core's way to reduce elements of a type; `call` is for the error."""
    if op == _SUM and dtype in _SUMMED:  # nearly every call: comparing is faster than hashing
        return _PLAIN_SUM
    # Not isinstance(op, ReduceOp), which torch 2.13 affirms for a bare RedOpType, too.
    kind = getattr(op, "op", op)
    if dtype == torch.bool:
        if kind in _BOOL_NAMES:
            return Reduction(_BOOL_NAMES[kind])
    elif dtype.is_complex and kind not in _OF_COMPLEX:
        pass  # a complex number travels as two real ones
    elif kind == _Kind.PREMUL_SUM:
        if dtype.is_floating_point or dtype.is_complex:  # as with NCCL, no whole numbers
            factor = op.__getstate__()[1]
            return Reduction("sum", lambda x: (x * factor).to(x.dtype))
    elif kind in _PLAIN:
        return _PLAIN[kind]
    raise_status(
        ErrorCode.ERROR_UNSUPPORTED, f"{call}: collops has no {kind.name} of {dtype} elements"
    )


def averages_apart(x: torch.Tensor, op: str, *, of_products: bool = False) -> bool:
    """Whether the sum is divided after the call: products have an average on CPUs alone."""
    if op != "avg" or not x.is_floating_point() or (kind := kind_of(x)) is None:
        return False
    return of_products or not kind.averages
