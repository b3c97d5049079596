"""The table of operators: each entry is complete, and no other module names an operator."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from golden.cases import all_cases, inputs, struct_fields
from golden.compare.atb_tolerance import COMPUTING, MOVING, SCATTERING
from golden.operators.table import OPERATIONS, OPERATORS

ROOT = Path(__file__).resolve().parents[3]
# What collops does otherwise than ATB is a list of patterns, each of some operators' rows.
PATTERNS = ("case_files/differences.py", "case_files/all_to_all_differences.py")


def operators_named_in(text: str) -> set[str]:
    """The operators that a source names in a string, its docstrings left out."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return strings & {*OPERATORS, *OPERATIONS}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_entry_is_whole(name: str) -> None:
    one = OPERATORS[name]
    assert OPERATIONS[one.operation] is one and one.operation.endswith("Operation")
    assert (ROOT / "examples" / "golden" / f"{name}.csv").exists()
    assert [name in names for names in (MOVING, SCATTERING, COMPUTING)].count(True) == 1
    case = all_cases(name, rank_sizes=(2,))[0]
    assert [case.operator, case.seed] == [name, 0]
    stated = ["x", *(own.name for own in one.inputs if not own.optional)]
    for rank, own in enumerate(inputs(case)):
        assert list(own)[: len(stated)] == stated
        assert len(own) in one.input_numbers({})
        json.dumps(struct_fields(case, rank))
    counted = {own.holds for own in one.inputs} - {"data", "length"}
    assert counted == set(one.numbers(case, 1)) == set(one.split([8, 8], 1))


def test_the_others_find_an_operator_through_the_table() -> None:
    for path in sorted((ROOT / "golden").rglob("*.py")):
        name = str(path.relative_to(ROOT / "golden"))
        if not name.startswith("operators/") and name not in PATTERNS:
            assert operators_named_in(path.read_text()) == set(), name
