"""Names of reductions: the core's words, and torch.distributed.ReduceOp."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NoReturn

from collops.collectives.plans import bad_argument

if TYPE_CHECKING:
    from collections.abc import Iterable

# What other libraries call the same reduction.
_WORDS_OF_OTHERS = {
    "add": "sum",
    "average": "avg",
    "maximum": "max",
    "mean": "avg",
    "minimum": "min",
    "mul": "prod",
    "multiply": "prod",
    "product": "prod",
}


def reduction_name(op: Any) -> Any:
    """The core's word for a member of torch.distributed.ReduceOp; any other `op` as it is."""
    if isinstance(op, str) or not type(op).__module__.startswith("torch."):
        return op
    # A ReduceOp has its kind as `op`; the members of the class are kinds themselves.
    word = getattr(getattr(op, "op", op), "name", None)
    return op if word is None else "prod" if word == "PRODUCT" else word.lower()


def refuse_reduction(name: str, op: Any, known: Iterable[str]) -> NoReturn:
    """Raises ERROR_INVALID_PARAM for a reduction that a method does not have.

    Args:
        name: the method's name, for messages.
        op: what the caller passed.
        known: the words that the method takes.
    """
    words = list(known)
    listed = ", ".join(f'"{word}"' for word in words[:-1]) + f' or "{words[-1]}"'
    if hasattr(op, "shape"):  # the result's memory, where the reduction stands
        bad_argument(f"{name}: op must be {listed}, got {type(op).__name__}: pass memory as out=")
    # "ReduceOp.SUM", np.add and the function sum have the word in their names.
    lower = str(getattr(op, "__name__", op)).lower().rpartition(".")[2]
    meant = _WORDS_OF_OTHERS.get(lower)
    near = [meant] if meant in words else difflib.get_close_matches(lower, words, 1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    bad_argument(f"{name}: op must be {listed}, got {op!r}{hint}")
