"""What a case says in its operator's parameter struct, beside rank and rankSize."""

from __future__ import annotations

from typing import Any

from .case import MESSAGES, Case, exchange_of


def struct_operator(case: Case, rank: int) -> str:
    """Return the operator that a rank calls in a case; empty where it takes no part.

    That is the case's own, but of a message: its sender calls send and its receiver recv.

    Example:
        >>> case = Case("send", "tiny", 3, "int8", (), (), ((2,),) * 3, (2,) * 3, root=2, peer=0)
        >>> [struct_operator(case, rank) for rank in range(3)]
        ['recv', '', 'send']
    """
    if case.operator not in MESSAGES:
        return case.operator
    return {case.root: "send", case.peer: "recv"}.get(rank, "")


def struct_fields(case: Case, rank: int) -> dict[str, Any]:
    """Return the fields of all_to_all, all_to_all_v, send and recv, by their JSON keys.

    Empty for the other operators, and for a rank that takes no part in a message.

    Example:
        >>> case = Case("send", "tiny", 3, "int8", (), (), ((2,),) * 3, (2,) * 3, root=2, peer=0)
        >>> [struct_fields(case, rank) for rank in range(3)]
        [{'srcRank': 2}, {}, {'destRank': 0}]
    """
    operator = struct_operator(case, rank)
    if operator == "all_to_all":
        return {"transpose": case.transpose}
    if operator == "all_to_all_v":
        return dict(exchange_of(case).lists(rank))
    if operator == "send":
        return {"destRank": case.peer}
    return {"srcRank": case.root} if operator == "recv" else {}
