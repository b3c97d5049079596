"""The parameter structs: ATB's defaults of their fields, and another value of each."""

from __future__ import annotations

from typing import Any

import pytest

import collops

PROCESSES, THREADS = collops.CommMode.COMM_MULTI_PROCESS, collops.CommMode.COMM_MULTI_THREAD
PER_TOKEN = collops.LinearParallelParam.QuantType.QUANT_TYPE_PER_TOKEN
# By field: ATB's default and another value; those of a struct's own stand in its row.
COMMON: dict[str, tuple[Any, Any]] = {
    "rank": (0, 2),
    "rank_size": (0, 4),
    "rank_root": (0, 1),
    "backend": ("hccl", "shm"),
    "hccl_comm": (None, None),
    "comm_mode": (PROCESSES, THREADS),
    "rank_table_file": ("", "a table.json"),
    "comm_domain": ("", 'tp "0" é'),
    "rsv": (bytes(64), None),
}
# The fields in ATB's order, and which of them are not as in COMMON.
ROWS: dict[type[Any], tuple[str, dict[str, tuple[Any, Any]]]] = {
    collops.AllGatherVParam: (
        "rank rank_size rank_root backend hccl_comm comm_mode rank_table_file comm_domain rsv",
        {"rank": (-1, 2)},
    ),
    collops.ReduceScatterVParam: (
        "rank rank_size rank_root send_counts sdispls recv_count reduce_type hccl_comm comm_mode "
        "backend rank_table_file comm_domain rsv",
        {
            "send_counts": ([], [1, 0, 2**40, 7]),
            "sdispls": ([], [0, 1, 2, 3]),
            "recv_count": (0, 2**40),
            "reduce_type": ("sum", "max"),
        },
    ),
    collops.LinearParallelParam: (
        "trans_weight rank rank_size rank_root has_residual backend hccl_comm comm_mode "
        "rank_table_file type keep_intermediate quant_type quant_group_size out_data_type "
        "comm_domain two_dim_tp_info moe_info rsv gather_rows scatter_rows sum_leaves sum_columns",
        {
            "trans_weight": (True, False),
            "rank_size": (0, 6),
            "has_residual": (False, True),
            "backend": ("hccl", "mc2"),
            "type": (
                collops.ParallelType.LINEAR_ALL_REDUCE,
                collops.ParallelType.ALL_GATHER_LINEAR,
            ),
            "keep_intermediate": (False, True),
            "quant_type": (-1, PER_TOKEN),
            "quant_group_size": (0, 64),
            "out_data_type": (-1, 27),
            "two_dim_tp_info": (
                collops.TwoDimTPInfo(ag_dim=0, rs_dim=0, inner_dim_is_ag=1),
                collops.TwoDimTPInfo(ag_dim=3, rs_dim=2, inner_dim_is_ag=0),
            ),
            "moe_info": (
                collops.MoeInfo(local_expert_nums=1, ep_size=1, tp_size=1),
                collops.MoeInfo(local_expert_nums=16, ep_size=3, tp_size=2),
            ),
            "rsv": (bytes(52), None),
            "gather_rows": ([], [0, 2**40, 7]),
            "scatter_rows": ([], [2**40 + 6, 1]),
            "sum_leaves": (0, 16),
            "sum_columns": ([], [2**40, 3]),
        },
    ),
    collops.AllGatherParam: (
        "rank rank_size rank_root backend hccl_comm comm_mode rank_table_file comm_domain rsv",
        {},
    ),
    collops.ReduceScatterParam: (
        "rank rank_size rank_root reduce_type hccl_comm comm_mode backend rank_table_file "
        "comm_domain rsv",
        {"reduce_type": ("sum", "prod"), "backend": ("lccl", "shm")},
    ),
    collops.AllReduceParam: (
        "rank rank_size rank_root all_reduce_type backend hccl_comm comm_mode rank_table_file "
        "comm_domain quant_type out_data_type rsv",
        {"all_reduce_type": ("sum", "min"), "quant_type": (0, 2), "out_data_type": (-1, 1)},
    ),
    collops.BroadcastParam: (
        "rank rank_size rank_root hccl_comm comm_mode backend rank_table_file comm_domain rsv",
        {},
    ),
    collops.AllToAllParam: (
        "rank rank_size rank_root backend hccl_comm comm_mode rank_table_file comm_domain "
        "transpose rsv",
        {"transpose": (False, True), "rsv": (bytes(62), None)},
    ),
    collops.AllToAllVParam: (
        "rank rank_size rank_root send_counts sdispls recv_counts rdispls backend hccl_comm "
        "comm_mode rank_table_file comm_domain rsv",
        {
            "send_counts": ([], [3, 0]),
            "sdispls": ([], [0, 3]),
            "recv_counts": ([], [1, 2**40]),
            "rdispls": ([], [2**40, 0]),
        },
    ),
    collops.AllToAllVV2Param: (
        "rank rank_size rank_root backend hccl_comm comm_mode rank_table_file comm_domain rsv",
        {"rank": (-1, 2)},
    ),
    collops.SendParam: (
        "rank rank_size rank_root dest_rank backend hccl_comm comm_mode rank_table_file "
        "comm_domain rsv",
        {"dest_rank": (1, 3)},
    ),
    collops.RecvParam: (
        "rank rank_size rank_root src_rank backend hccl_comm comm_mode rank_table_file "
        "comm_domain rsv",
        {"src_rank": (1, 3)},
    ),
}
VALUES = {
    struct: {name: {**COMMON, **own}[name] for name in names.split()}
    for struct, (names, own) in ROWS.items()
}
DEFAULTS = {
    struct: {name: default for name, (default, _) in values.items()}
    for struct, values in VALUES.items()
}
OTHERS = {
    struct: {name: other for name, (_, other) in values.items() if other is not None}
    for struct, values in VALUES.items()
}
STRUCTS = list(ROWS)
structs = pytest.mark.parametrize("struct", STRUCTS, ids=lambda s: s.__name__)
