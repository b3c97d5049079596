"""The parameter structs: ATB's fields and defaults, equality, repr and pickle."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from typing import Any

import pytest

import collops
from tests.unit.atb.param_values import DEFAULTS, OTHERS, STRUCTS, structs


@structs
def test_fields_and_defaults_are_atbs(struct: type[Any]) -> None:
    fields = {f.name: getattr(struct(), f.name) for f in dataclasses.fields(struct)}
    assert fields == DEFAULTS[struct]


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
    with pytest.raises(AttributeError, match=said):
        getattr(param, name)
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
