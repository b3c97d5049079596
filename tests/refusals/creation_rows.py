"""Refusals of CreateOperation: operators, wrong fields, and a part of the message.

The code is ERROR_INVALID_PARAM in every row.
"""

from __future__ import annotations

from typing import Any

from right_calls import EVERY, EXCHANGES, REDUCTIONS, V

from collops import LinearParallelParam

Row = tuple[tuple[str, ...], dict[str, Any], str]
WITH_64_BYTES = tuple(name for name in EVERY if name not in ("AllToAll", "LinearParallel"))
NOT_LINEAR = tuple(name for name in EVERY if name != "LinearParallel")
LINEAR = ("LinearParallel",)
MC2: dict[str, Any] = {"backend": "mc2", "has_residual": False}
NO_PROD = '"prod" does not exist on backend "lccl": use "hccl"'

CREATION: list[Row] = [
    (EVERY, {"rank_size": 1}, "rankSize must be >= 2, got 1"),
    (EVERY, {"rank_size": 0}, "rankSize must be >= 2, got 0"),
    (EVERY, {"rank_size": -4}, "rankSize must be >= 2, got -4"),
    (EVERY, {"rank": 2}, "rank must be in [0, 2), got 2"),
    (EVERY, {"rank": -2}, "rank must be in [0, 2), got -2"),
    (EVERY, {"rank_root": 2}, "rankRoot must be in [0, 2), got 2"),
    (EVERY, {"rank_root": 9}, "rankRoot must be in [0, 2), got 9"),
    (EVERY, {"rank_root": -1}, "rankRoot must be in [0, 2), got -1"),
    (EVERY, {"comm_mode": -1}, "commMode must be 0 (COMM_MULTI_PROCESS) or 1"),
    (EVERY, {"comm_mode": 2}, "COMM_MULTI_THREAD), got 2"),
    (EVERY, {"comm_mode": 5}, "COMM_MULTI_THREAD), got 5"),
    (V, {"backend": "gloo"}, 'unknown backend "gloo"; pass "hccl", "nccl", "cuda", "shm"'),
    (LINEAR, {"backend": "gloo"}, 'unknown backend "gloo"; pass "hccl", "lccl", "lcoc", "mc2"'),
    (EVERY, {"backend": "hccc"}, 'unknown backend "hccc"'),
    (EVERY, {"backend": ""}, 'unknown backend ""'),
    ((*V, *EXCHANGES), {"backend": "lccl"}, 'backend "lccl" does not run this operator'),
    (NOT_LINEAR, {"backend": "lcoc"}, 'backend "lcoc" does not run this operator'),
    (NOT_LINEAR, {"backend": "mc2"}, 'backend "mc2" does not run this operator'),
    (EVERY, {"comm_domain": "d" * 129}, "commDomain has 129 characters, the limit is 128"),
    (WITH_64_BYTES, {"rsv": bytes(63) + b"\7"}, "rsv[63]"),
    (EVERY, {"rsv": b"\1" + bytes(63)}, "rsv"),
    (LINEAR, {"rsv": bytes(51) + b"\1"}, "rsv"),
    (EVERY, {"rank_table_file": "/no/such/table.json"}, 'rankTableFile "/no/such/table.json"'),
    # Of two faults, the one whose line of the table comes first.
    (EXCHANGES, {"rsv": b"\1" + bytes(63), "backend": "hccc"}, "rsv[0]"),
    (EXCHANGES, {"backend": "lccl", "rank_size": 1}, 'backend "lccl" does not run this operator'),
    (EXCHANGES, {"rank_size": 1, "comm_mode": 5}, "rankSize must be >= 2, got 1"),
    (EXCHANGES, {"comm_mode": 5, "rank": 7}, "COMM_MULTI_THREAD), got 5"),
    *(
        (("ReduceScatterV",), {"reduce_type": op}, f'must be "sum", "max" or "min", got "{op}"')
        for op in ("prod", "avg", "SUM", "")
    ),
    *(
        ((name,), {field: op}, f'must be "sum", "max", "min" or "prod", got "{op}"')
        for name, field in REDUCTIONS.items()
        for op in ("avg", "SUM", "")
    ),
    *(((name,), {"backend": "lccl", field: "prod"}, NO_PROD) for name, field in REDUCTIONS.items()),
    *(
        (
            ("AllReduce",),
            {"quant_type": number, "out_data_type": 1},
            f"quantType {number} asks for a quantised AllReduce",
        )
        for number in (1, 2, 3, -1)
    ),
    (
        ("AllToAllV",),
        {"send_counts": []},
        "AllToAllV: sendCounts must have 2 numbers, one per rank, got 0",
    ),
    (
        ("AllToAllV",),
        {"rdispls": [0, 1, 2]},
        "AllToAllV: rdispls must have 2 numbers, one per rank, got 3",
    ),
    (("AllToAllV",), {"sdispls": [0, -1]}, "AllToAllV: sdispls[1] must be >= 0, got -1"),
    (LINEAR, {"type": -1}, "type must be in [0, 4], got -1"),
    (LINEAR, {"type": 5}, "type 5 (ALLTOALLVC_ALL_GATHER_GMM) multiplies for a mixture of experts"),
    (LINEAR, {"type": 6}, "type 6 (GMM_REDUCE_SCATTER_ALLTOALLVC)"),
    (LINEAR, {"type": 7}, "type must be in [0, 4], got 7"),
    (
        LINEAR,
        {"quant_type": LinearParallelParam.QuantType.QUANT_TYPE_PER_TENSOR},
        "quantType 0 (QUANT_TYPE_PER_TENSOR) asks for a quantised product",
    ),
    (LINEAR, {"quant_type": 3}, "quantType 3 (QUANT_TYPE_PER_TOKEN)"),
    (LINEAR, {"keep_intermediate": True}, "keepIntermediate needs type 2 (ALL_GATHER_LINEAR)"),
    (LINEAR, {"backend": "mc2"}, 'backend "mc2" does not support hasResidual'),
    (LINEAR, MC2, "supports only commMode 1"),
    (LINEAR, {**MC2, "comm_mode": 1}, "supports only type 1"),
]
