"""The parameter structs: ATB's fields and defaults, equality, repr, pickle and JSON."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
from typing import Any

import numpy as np
import pytest

import collops

DEFAULTS: dict[type[Any], dict[str, Any]] = {
    collops.AllGatherVParam: {
        "rank": -1,
        "rank_size": 0,
        "rank_root": 0,
        "backend": "hccl",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "rank_table_file": "",
        "comm_domain": "",
        "rsv": bytes(64),
    },
    collops.ReduceScatterVParam: {
        "rank": 0,
        "rank_size": 0,
        "rank_root": 0,
        "send_counts": [],
        "sdispls": [],
        "recv_count": 0,
        "reduce_type": "sum",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "backend": "hccl",
        "rank_table_file": "",
        "comm_domain": "",
        "rsv": bytes(64),
    },
    collops.LinearParallelParam: {
        "trans_weight": True,
        "rank": 0,
        "rank_size": 0,
        "rank_root": 0,
        "has_residual": False,
        "backend": "hccl",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "rank_table_file": "",
        "type": collops.ParallelType.LINEAR_ALL_REDUCE,
        "keep_intermediate": False,
        "quant_type": -1,
        "quant_group_size": 0,
        "out_data_type": -1,
        "comm_domain": "",
        "two_dim_tp_info": collops.TwoDimTPInfo(ag_dim=0, rs_dim=0, inner_dim_is_ag=1),
        "moe_info": collops.MoeInfo(local_expert_nums=1, ep_size=1, tp_size=1),
        "rsv": bytes(52),
        "gather_rows": [],
        "scatter_rows": [],
    },
    collops.AllGatherParam: {
        "rank": 0,
        "rank_size": 0,
        "rank_root": 0,
        "backend": "hccl",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "rank_table_file": "",
        "comm_domain": "",
        "rsv": bytes(64),
    },
    collops.ReduceScatterParam: {
        "rank": 0,
        "rank_size": 0,
        "rank_root": 0,
        "reduce_type": "sum",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "backend": "lccl",
        "rank_table_file": "",
        "comm_domain": "",
        "rsv": bytes(64),
    },
    collops.AllReduceParam: {
        "rank": 0,
        "rank_size": 0,
        "rank_root": 0,
        "all_reduce_type": "sum",
        "backend": "hccl",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "rank_table_file": "",
        "comm_domain": "",
        "quant_type": 0,
        "out_data_type": -1,
        "rsv": bytes(64),
    },
    collops.BroadcastParam: {
        "rank": 0,
        "rank_size": 0,
        "rank_root": 0,
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "backend": "hccl",
        "rank_table_file": "",
        "comm_domain": "",
        "rsv": bytes(64),
    },
    collops.AllToAllParam: {
        "rank": 0,
        "rank_size": 0,
        "rank_root": 0,
        "backend": "hccl",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "rank_table_file": "",
        "comm_domain": "",
        "transpose": False,
        "rsv": bytes(62),
    },
    collops.AllToAllVParam: {
        "rank": 0,
        "rank_size": 0,
        "rank_root": 0,
        "send_counts": [],
        "sdispls": [],
        "recv_counts": [],
        "rdispls": [],
        "backend": "hccl",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "rank_table_file": "",
        "comm_domain": "",
        "rsv": bytes(64),
    },
    collops.AllToAllVV2Param: {
        "rank": -1,
        "rank_size": 0,
        "rank_root": 0,
        "backend": "hccl",
        "hccl_comm": None,
        "comm_mode": collops.CommMode.COMM_MULTI_PROCESS,
        "rank_table_file": "",
        "comm_domain": "",
        "rsv": bytes(64),
    },
}
OTHERS: dict[type[Any], dict[str, Any]] = {
    collops.AllGatherVParam: {
        "rank": 2,
        "rank_size": 4,
        "rank_root": 1,
        "backend": "shm",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "a table.json",
        "comm_domain": 'tp "0" é',
    },
    collops.ReduceScatterVParam: {
        "rank": 2,
        "rank_size": 4,
        "rank_root": 3,
        "send_counts": [1, 0, 2**40, 7],
        "sdispls": [0, 1, 2, 3],
        "recv_count": 2**40,
        "reduce_type": "max",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "backend": "shm",
        "rank_table_file": "t.json",
        "comm_domain": "dp",
    },
    collops.LinearParallelParam: {
        "trans_weight": False,
        "rank": 1,
        "rank_size": 6,
        "rank_root": 5,
        "has_residual": True,
        "backend": "mc2",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "t.json",
        "type": collops.ParallelType.ALL_GATHER_LINEAR,
        "keep_intermediate": True,
        "quant_type": collops.LinearParallelParam.QuantType.QUANT_TYPE_PER_TOKEN,
        "quant_group_size": 64,
        "out_data_type": 27,
        "comm_domain": "tp",
        "two_dim_tp_info": collops.TwoDimTPInfo(ag_dim=3, rs_dim=2, inner_dim_is_ag=0),
        "moe_info": collops.MoeInfo(local_expert_nums=16, ep_size=3, tp_size=2),
        "gather_rows": [0, 2**40, 7],
        "scatter_rows": [2**40 + 6, 1],
    },
    collops.AllGatherParam: {
        "rank": 2,
        "rank_size": 4,
        "rank_root": 1,
        "backend": "shm",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "t.json",
        "comm_domain": "dp",
    },
    collops.ReduceScatterParam: {
        "rank": 2,
        "rank_size": 4,
        "rank_root": 1,
        "backend": "shm",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "t.json",
        "comm_domain": "dp",
        "reduce_type": "prod",
    },
    collops.AllReduceParam: {
        "rank": 2,
        "rank_size": 4,
        "rank_root": 1,
        "backend": "shm",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "t.json",
        "comm_domain": "dp",
        "all_reduce_type": "min",
        "quant_type": 2,
        "out_data_type": 1,
    },
    collops.BroadcastParam: {
        "rank": 2,
        "rank_size": 4,
        "rank_root": 1,
        "backend": "shm",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "t.json",
        "comm_domain": "dp",
    },
    collops.AllToAllParam: {
        "rank": 1,
        "rank_size": 4,
        "rank_root": 2,
        "backend": "shm",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "table.json",
        "comm_domain": "dp",
        "transpose": True,
    },
    collops.AllToAllVParam: {
        "rank": 1,
        "rank_size": 2,
        "rank_root": 1,
        "send_counts": [3, 0],
        "sdispls": [0, 3],
        "recv_counts": [1, 2**40],
        "rdispls": [2**40, 0],
        "backend": "shm",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "table.json",
        "comm_domain": "dp",
    },
    collops.AllToAllVV2Param: {
        "rank": 1,
        "rank_size": 4,
        "rank_root": 2,
        "backend": "shm",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
        "rank_table_file": "table.json",
        "comm_domain": "dp",
    },
}
STRUCTS = list(DEFAULTS)
structs = pytest.mark.parametrize("struct", STRUCTS, ids=lambda s: s.__name__)


@structs
def test_fields_and_defaults_are_atbs(struct: type[Any]) -> None:
    fields = {f.name: getattr(struct(), f.name) for f in dataclasses.fields(struct)}
    assert list(fields.items()) == list(DEFAULTS[struct].items())


@structs
def test_lists_are_not_shared(struct: type[Any]) -> None:
    for name, value in DEFAULTS[struct].items():
        if isinstance(value, list):
            getattr(struct(), name).append(1)
            assert getattr(struct(), name) == []


@structs
def test_only_keywords_construct(struct: type[Any]) -> None:
    with pytest.raises(TypeError):
        struct(0, 2)
    with pytest.raises(TypeError, match="world_size"):
        struct(world_size=2)


MISSPELT = [
    (collops.ReduceScatterVParam, "reduceType", "; did you mean reduce_type?"),
    (collops.AllGatherVParam, "rnak", "; did you mean rank?"),
    (collops.AllGatherVParam, "commDomain", "; did you mean comm_domain?"),
    (collops.AllGatherVParam, "ranksize", "; did you mean rank_size?"),
    (collops.AllReduceParam, "allReduceType", "; did you mean all_reduce_type?"),
    (collops.LinearParallelParam, "transWeight", "; did you mean trans_weight?"),
    (collops.TwoDimTPInfo, "agDim", "; did you mean ag_dim?"),
    (collops.MoeInfo, "epsize", "; did you mean ep_size?"),
    (collops.TwoDimTPInfo, "banana", "; its fields are ag_dim, rs_dim, inner_dim_is_ag"),
]


@pytest.mark.parametrize(("struct", "name", "hint"), MISSPELT)
def test_a_misspelt_field_is_refused(struct: type[Any], name: str, hint: str) -> None:
    said = re.escape(f"{struct.__name__} has no field {name}{hint}")
    param = struct()
    with pytest.raises(AttributeError, match=said):
        setattr(param, name, 1)
    with pytest.raises(TypeError, match=said):
        struct(**{name: 1})
    assert not hasattr(param, name)
    assert param == struct()


@pytest.mark.parametrize("struct", [*STRUCTS, collops.TwoDimTPInfo, collops.MoeInfo])
def test_every_struct_takes_its_own_fields_alone(struct: type[Any]) -> None:
    param = struct()
    for f in dataclasses.fields(struct):
        setattr(param, f.name, getattr(struct(), f.name))
    for again in (param, copy.copy(param), copy.deepcopy(param), dataclasses.replace(param)):
        assert again == struct()
        with pytest.raises(AttributeError, match=f"{struct.__name__} has no field of_no_struct"):
            again.of_no_struct = 1
    with pytest.raises(TypeError, match=f"{struct.__name__} has no field of_no_struct"):
        dataclasses.replace(param, of_no_struct=1)


@structs
def test_equality_sees_every_field(struct: type[Any]) -> None:
    assert struct() == struct()
    for name, value in {**OTHERS[struct], "hccl_comm": 77, "rsv": b"\1" + bytes(63)}.items():
        assert struct(**{name: value}) != struct(), name


@structs
def test_repr_can_be_read_back(struct: type[Any]) -> None:
    param = struct(**OTHERS[struct])
    scope = {struct.__name__: struct, "CommMode": collops.CommMode, **vars(struct)}
    text = re.sub(r"<(\w+\.\w+): -?\d+>", r"\1", repr(param))
    assert eval(text, scope) == param


@structs
def test_pickle(struct: type[Any]) -> None:
    param = struct(**OTHERS[struct])
    assert pickle.loads(pickle.dumps(param)) == param


@structs
def test_a_communicator_does_not_pickle(struct: type[Any]) -> None:
    with pytest.raises(TypeError, match="hccl_comm does not pickle: the communicator belongs"):
        pickle.dumps(struct(hccl_comm=1234))


@structs
def test_json_round_trip(struct: type[Any]) -> None:
    for param in (struct(), struct(**OTHERS[struct])):
        again = struct.from_json(param.to_json())
        assert again == param
        assert type(again.comm_mode) is collops.CommMode


def test_json_has_atbs_keys_and_numbers() -> None:
    values = json.loads(
        collops.AllGatherVParam(rank=1, comm_mode=collops.CommMode.COMM_MULTI_THREAD).to_json()
    )
    assert values["rank"] == 1
    assert values["commMode"] == 1
    assert {"rankSize", "rankRoot", "backend", "rankTableFile", "commDomain"} < set(values)
    assert "hcclComm" not in values
    assert not [key for key in values if "_" in key]


def test_json_never_holds_the_communicator() -> None:
    assert "1234567" not in collops.AllGatherVParam(hccl_comm=1234567).to_json()


@structs
def test_json_keys_are_optional(struct: type[Any]) -> None:
    assert struct.from_json("{}") == struct()
    assert struct.from_json('{"rankSize": 3}') == struct(rank_size=3)


@structs
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rankSise": 2}', "rankSise"),
        ('{"rank_size": 2}', "rank_size"),
        ('{"rankSize": "two"}', "rankSize"),
        ('{"rankSize": 2.5}', "rankSize"),
        ('{"rankSize": 3000000000}', "rankSize"),
        ('{"backend": 1}', "backend"),
        ('{"commMode": "COMM_MULTI_PROCESS"}', "commMode"),
        ('{"rsv": [0, 1]}', "rsv"),
        ('{"rank": 1', "JSON"),
        ("[]", "object"),
    ],
)
def test_json_that_is_no_struct(struct: type[Any], text: str, message: str) -> None:
    with pytest.raises(collops.Error, match=message) as caught:
        struct.from_json(text)
    assert caught.value.code == 1
    assert struct.__name__ in caught.value.message


@pytest.mark.parametrize("text", [{"rank": 1}, None, 3])
def test_what_is_no_json_text(text: Any) -> None:
    with pytest.raises(collops.Error, match=f"a JSON text is needed, got {type(text).__name__}"):
        collops.AllGatherVParam.from_json(text)


@structs
def test_json_takes_zero_rsv(struct: type[Any]) -> None:
    assert struct.from_json(f'{{"rsv": {[0] * len(struct().rsv)}}}') == struct()


def test_numbers_of_numpy_are_numbers() -> None:
    param = collops.ReduceScatterVParam(
        rank_size=np.int64(4),
        send_counts=np.array([1, 2]),  # type: ignore[arg-type]
    )
    assert json.loads(param.to_json())["sendCounts"] == [1, 2]


def test_a_field_of_no_json_type() -> None:
    with pytest.raises(collops.Error, match="object is no value") as caught:
        collops.AllGatherVParam(rank=object()).to_json()  # type: ignore[arg-type]
    assert caught.value.code == 1


def test_an_unknown_comm_mode_stays_a_number() -> None:
    assert collops.AllGatherVParam.from_json('{"commMode": 7}').comm_mode == 7
