"""Random parameter structs: JSON and pickle bring back an equal struct, and wrong JSON is named."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collops

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=40)
MODES = st.sampled_from(collops.CommMode)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "rank": INT32,
    "rank_size": INT32,
    "rank_root": INT32,
    "backend": TEXT,
    "comm_mode": MODES,
    "rank_table_file": TEXT,
    "comm_domain": TEXT,
}
COUNTS: dict[str, st.SearchStrategy[Any]] = {
    "send_counts": st.lists(INT64, max_size=8),
    "sdispls": st.lists(INT64, max_size=8),
    "recv_count": INT64,
    "reduce_type": TEXT,
}
GRIDS = st.builds(
    collops.TwoDimTPInfo,
    ag_dim=st.integers(0, 2**16 - 1),
    rs_dim=st.integers(0, 2**16 - 1),
    inner_dim_is_ag=st.integers(0, 255),
)
EXPERTS = st.builds(
    collops.MoeInfo,
    local_expert_nums=st.integers(-(2**15), 2**15 - 1),
    ep_size=st.integers(-128, 127),
    tp_size=st.integers(-128, 127),
)
LINEAR: dict[str, st.SearchStrategy[Any]] = {
    "trans_weight": st.booleans(),
    "type": INT32 | st.sampled_from(collops.ParallelType),
    "quant_type": INT32,
    "out_data_type": INT32,
    "two_dim_tp_info": GRIDS,
    "moe_info": EXPERTS,
    "gather_rows": st.lists(INT64, max_size=8),
    "scatter_rows": st.lists(INT64, max_size=8),
}
Param = collops.AllGatherVParam | collops.ReduceScatterVParam | collops.LinearParallelParam


@st.composite
def params(draw: st.DrawFn) -> Param:
    """A struct with some of its fields set."""
    if draw(st.booleans()):
        return collops.AllGatherVParam(**draw(st.fixed_dictionaries({}, optional=COMMON)))
    if draw(st.booleans()):
        linear = st.fixed_dictionaries({}, optional={**COMMON, **LINEAR})
        return collops.LinearParallelParam(**draw(linear))
    fields = st.fixed_dictionaries({}, optional={**COMMON, **COUNTS})
    return collops.ReduceScatterVParam(**draw(fields))


@given(params())
def test_json_brings_back_an_equal_struct(param: Param) -> None:
    text = param.to_json()
    again = type(param).from_json(text)
    assert again == param
    assert again.to_json() == text
    assert type(again.comm_mode) is collops.CommMode


@given(params(), st.data())
def test_any_part_of_the_json_is_enough(param: Param, data: st.DataObject) -> None:
    values = json.loads(param.to_json())
    kept = data.draw(st.sets(st.sampled_from(sorted(values))))
    part = {key: values[key] for key in data.draw(st.permutations(sorted(kept)))}
    again = json.loads(type(param).from_json(json.dumps(part)).to_json())
    defaults = json.loads(type(param)().to_json())
    assert again == {**defaults, **part}


@given(params())
def test_pickle_brings_back_an_equal_struct(param: Param) -> None:
    again = pickle.loads(pickle.dumps(param))
    assert again == param
    assert type(again) is type(param)


@given(params(), st.text(min_size=1, max_size=20))
def test_an_unknown_key_is_named(param: Param, key: str) -> None:
    values = json.loads(param.to_json())
    if key in {*values, "rsv", "hcclComm"}:
        return
    with pytest.raises(collops.Error) as caught:
        type(param).from_json(json.dumps({**values, key: 0}, ensure_ascii=False))
    assert caught.value.code == 1
    named = caught.value.message.partition("unknown key ")[2]
    assert json.JSONDecoder().raw_decode(named)[0] == key


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.sampled_from(sorted({*COMMON, *COUNTS})), JSON)
def test_a_wrong_value_is_an_error_and_never_another_value(field: str, value: Any) -> None:
    key = json.loads(collops.ReduceScatterVParam().to_json())
    first, *others = field.split("_")
    name = first + "".join(part.capitalize() for part in others)
    assert name in key
    text = json.dumps({name: value})
    try:
        param = collops.ReduceScatterVParam.from_json(text)
    except collops.Error as error:
        assert error.code == 1
        return
    assert json.loads(param.to_json())[name] == value


@given(st.text(max_size=30))
def test_any_text_is_a_struct_or_an_error(text: str) -> None:
    try:
        collops.AllGatherVParam.from_json(text)
    except collops.Error as error:
        assert error.code == 1
