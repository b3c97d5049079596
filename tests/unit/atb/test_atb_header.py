"""The structs' fields and defaults against ATB's header infer_op_params.h.

COLLOPS_ATB_HEADER is the path of the header, which no package has; without it only a header in
the same form is read, which shows that differences are found.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import collops
from collops.core import core

OWN = """
enum CommMode : int { COMM_UNDEFINED = -1, COMM_MULTI_PROCESS, COMM_MULTI_THREAD };
struct LinearParallelParam {
    enum ParallelType : int {
        UNDEFINED = -1,         //!< none; default
        LINEAR_ALL_REDUCE = 0,
        PURE_LINEAR = 3,
    };
    enum QuantType : int { QUANT_TYPE_UNDEFINED = -1, QUANT_TYPE_UNQUANT = -1 };
    bool transWeight = true;
    int rank = 0;
    int rankSize = 0;
    int rankRoot = 0;
    bool hasResidual = false;
    std::string backend = "hccl";  /* one; of several */
    HcclComm hcclComm = nullptr;
    CommMode commMode = COMM_MULTI_PROCESS;
    std::string rankTableFile;
    ParallelType type = LINEAR_ALL_REDUCE;
    bool keepIntermediate = false;
    QuantType quantType = QUANT_TYPE_UNQUANT;
    int32_t quantGroupSize = 0;
    aclDataType outDataType = ACL_DT_UNDEFINED;
    std::string commDomain;
    struct TwoDimTPInfo { uint16_t agDim = 0; uint16_t rsDim = 0; uint8_t innerDimIsAg = 1;
                          uint8_t rsv[3] = {0}; };
    TwoDimTPInfo twoDimTPInfo;
    struct MoeInfo { int16_t localExpertNums = 1; int8_t epSize = 1; int8_t tpSize = 1; };
    MoeInfo moeInfo;
    uint8_t rsv[52] = {0};
};
struct AllToAllVParam {
    int rank = 0;
    int rankSize = 0;
    int rankRoot = 0;
    std::vector<int64_t> sendCounts;
    std::vector<int64_t> sdispls = {};
    std::vector<int64_t> recvCounts = {};
    std::vector<int64_t> rdispls = {};
    std::string backend = "hccl";
    HcclComm hcclComm = nullptr;
    CommMode commMode = COMM_MULTI_PROCESS;
    std::string rankTableFile;
    std::string commDomain;
    uint8_t rsv[64] = {0};
};
"""
# Fields that are this library's own.
MORE = {"gatherRows", "scatterRows", "sumLeaves", "sumColumns"}
FIELD = re.compile(r"([\w:<>]+)\s+(\w+)(?:\[\w+\])?\s*(?:=\s*([^;]*?))?\s*;")


def body(text: str, begin: int) -> str:
    """What is between the first brace from `begin` on and the one that closes it."""
    begin = text.index("{", begin) + 1
    depth, end = 1, begin
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[begin : end - 1]


def enumerators(text: str) -> dict[str, int]:
    """The numbers of all enumerators; of equal names in several enumerations, the last one's."""
    found = {"ACL_DT_UNDEFINED": -1}
    for line in re.finditer(r"\benum\s+(?:class\s+)?\w+[^{;]*{", text):
        number = -1
        for one in filter(str.strip, body(text, line.start()).split(",")):
            name, _, value = (part.strip() for part in one.partition("="))
            number = int(value, 0) if value else number + 1
            found[name] = number
    return found


def struct(text: str, name: str, known: dict[str, int]) -> dict[str, Any] | None:
    """The defaults of a struct's fields by their names; None if the header does not have it."""
    begin = re.search(rf"\bstruct\s+{name}\s*{{", text)
    if begin is None:
        return None
    inside = body(text, begin.start())
    known = known | enumerators(inside)
    # The nested types go; what is left is fields.
    plain = re.sub(r"\b(?:enum|struct)\s+\w+[^{;]*{(?:[^{}]|{[^{}]*})*}\s*;", "", inside)
    fields: dict[str, Any] = {}
    for kind, field, default in FIELD.findall(plain):
        if field in ("rsv", "hcclComm"):  # which JSON leaves out
            continue
        nested = struct(inside, kind, known)
        fields[field] = nested if nested is not None else value_of(kind, default, known)
    return fields


def value_of(kind: str, default: str, known: dict[str, int]) -> Any:
    if default in known:
        return known[default]
    if "vector" in kind:
        return []
    if "string" in kind:
        return default.strip('"')
    return {"true": True, "false": False}.get(default) if kind == "bool" else int(default, 0)


def differences(header: str) -> dict[str, tuple[Any, Any]]:
    """By struct and field: ATB's default and ours, where they differ; None: there is no field."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header, flags=re.DOTALL)
    known, found = enumerators(text), {}
    for name in filter(lambda one: one.endswith("Param"), collops.__all__):
        theirs = struct(text, name, known)
        if theirs is None:
            continue
        ours = json.loads(core().normal_json(name, "{}"))
        for field in (theirs.keys() | ours.keys()) - MORE:
            pair = theirs.get(field), ours.get(field)
            if pair[0] != pair[1]:
                found[f"{name}.{field}"] = pair
    return found


GIVEN = os.environ.get("COLLOPS_ATB_HEADER")
HEADERS = [OWN, Path(GIVEN).read_text()] if GIVEN else [OWN]


@pytest.mark.parametrize("header", HEADERS, ids=["own", "ATB"][: len(HEADERS)])
def test_the_structs_are_atbs(header: str) -> None:
    assert differences(header) == {}


def test_differences_are_found() -> None:
    changed = OWN.replace("bool hasResidual = false", "bool hasBias = true")
    changed = changed.replace("int8_t epSize = 1", "int8_t epSize = 2")
    changed = changed.replace(
        "commDomain;\n    uint8_t rsv[64]", 'commDomain = "x";\n    int rsv[64]'
    )
    moe = {"localExpertNums": 1, "epSize": 1, "tpSize": 1}
    assert differences(changed) == {
        "LinearParallelParam.hasBias": (True, None),
        "LinearParallelParam.hasResidual": (None, False),
        "LinearParallelParam.moeInfo": (moe | {"epSize": 2}, moe),
        "AllToAllVParam.commDomain": ("x", ""),
    }
