"""The parameter structs as JSON: ATB's keys and numbers, and refusals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import collops
from tests.unit.atb.param_values import OTHERS, structs


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


@structs
def test_json_takes_zero_rsv(struct: type[Any]) -> None:
    assert struct.from_json(f'{{"rsv": {[0] * len(struct().rsv)}}}') == struct()


def test_numbers_of_numpy_are_numbers() -> None:
    param = collops.ReduceScatterVParam(
        rank_size=np.int64(4),
        send_counts=np.array([1, 2]),  # type: ignore[arg-type]
    )
    assert json.loads(param.to_json())["sendCounts"] == [1, 2]


def test_an_unknown_comm_mode_stays_a_number() -> None:
    assert collops.AllGatherVParam.from_json('{"commMode": 7}').comm_mode == 7
