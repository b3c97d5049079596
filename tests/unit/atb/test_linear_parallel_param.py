"""LinearParallelParam in Python: torch_atb's spellings, enums and the structs inside it."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import numpy as np
import pytest

import collops
import collops as torch_atb
from collops import LinearParallelParam, MoeInfo, ParallelType, TwoDimTPInfo


def test_the_spellings_of_torch_atb() -> None:
    grid = torch_atb.TwoDimTPInfo()
    grid.ag_dim, grid.rs_dim, grid.inner_dim_is_ag = 2, 4, 0
    anything: Any = torch_atb.LinearParallelParam
    param = anything(
        trans_weight=False,
        type=anything.ParallelType.ALL_GATHER_LINEAR_REDUCE_SCATTER,
        quant_type=anything.QuantType.QUANT_TYPE_UNQUANT,
        two_dim_TP_info=grid,
        moe_info=anything.MoeInfo(localExpertNums=3, epSize=2, tpSize=4),
    )
    assert param.two_dim_TP_info is param.two_dim_tp_info is grid
    assert (param.moe_info.epSize, param.moe_info.ep_size) == (2, 2)
    param.two_dim_TP_info = TwoDimTPInfo(ag_dim=8)
    param.moe_info.tpSize = 5
    assert param.two_dim_tp_info.ag_dim == 8
    assert param.moe_info == MoeInfo(local_expert_nums=3, ep_size=2, tp_size=5)
    assert anything.LINEAR_REDUCE_SCATTER is ParallelType.LINEAR_REDUCE_SCATTER
    assert anything.QUANT_TYPE_PER_TOKEN == 3


def test_a_field_by_both_of_its_names() -> None:
    anything: Any = LinearParallelParam
    with pytest.raises(TypeError, match="two_dim_TP_info and two_dim_tp_info are the same field"):
        anything(two_dim_TP_info=TwoDimTPInfo(), two_dim_tp_info=TwoDimTPInfo())
    with pytest.raises(TypeError, match="two_dim_Tp_info"):
        anything(two_dim_Tp_info=TwoDimTPInfo())


def test_replace_keeps_the_rest() -> None:
    param = LinearParallelParam(two_dim_tp_info=TwoDimTPInfo(ag_dim=2), gather_rows=[1, 2])
    other = dataclasses.replace(param, two_dim_tp_info=TwoDimTPInfo(ag_dim=3))
    assert (other.two_dim_tp_info.ag_dim, other.gather_rows) == (3, [1, 2])


def test_the_structs_inside_are_not_shared() -> None:
    LinearParallelParam().two_dim_tp_info.ag_dim = 7
    assert LinearParallelParam().two_dim_tp_info.ag_dim == 0


def test_the_structs_inside_count_and_pickle() -> None:
    param = LinearParallelParam(moe_info=MoeInfo(ep_size=2))
    assert param != LinearParallelParam()
    assert pickle.loads(pickle.dumps(param)) == param


def test_json_has_atbs_keys() -> None:
    grid = TwoDimTPInfo(ag_dim=np.int64(2), rs_dim=3, inner_dim_is_ag=False)
    values = json.loads(LinearParallelParam(type=4, two_dim_tp_info=grid).to_json())
    assert values["twoDimTPInfo"] == {"agDim": 2, "rsDim": 3, "innerDimIsAg": 0}
    assert values["moeInfo"] == {"localExpertNums": 1, "epSize": 1, "tpSize": 1}
    assert (values["type"], values["quantType"], values["outDataType"]) == (4, -1, -1)


def test_json_gives_enums_and_structs() -> None:
    text = '{"type": 2, "quantType": 3, "twoDimTPInfo": {"agDim": 5, "rsv": [0]}}'
    param = LinearParallelParam.from_json(text)
    assert param.type is ParallelType.ALL_GATHER_LINEAR
    assert param.quant_type is LinearParallelParam.QuantType.QUANT_TYPE_PER_TOKEN
    assert param.two_dim_tp_info == TwoDimTPInfo(ag_dim=5)
    assert LinearParallelParam.from_json('{"type": 77}').type == 77


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"twoDimTPInfo": {"agDin": 2}}', 'twoDimTPInfo: unknown key "agDin"'),
        ('{"twoDimTPInfo": [2, 2]}', "twoDimTPInfo must be an object, got array"),
        ('{"twoDimTPInfo": {"agDim": -1}}', "agDim must be an integer from 0 to 65535"),
        ('{"moeInfo": {"tpSize": 200}}', "tpSize must be an integer from -128 to 127"),
        ('{"twoDimTPInfo": {"rsv": [0, 0, 7]}}', "rsv[2] must be 0"),
        ('{"gatherRows": [1, 2.5]}', "gatherRows[1] must be an integer"),
    ],
)
def test_json_that_is_no_struct(text: str, message: str) -> None:
    with pytest.raises(collops.Error) as caught:
        LinearParallelParam.from_json(text)
    assert caught.value.code == 1
    assert message in caught.value.message
