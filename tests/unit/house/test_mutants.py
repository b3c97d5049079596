"""The faults of tests/mutants still fit the sources, and their table is readable."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import mutants

FAULTS = mutants.read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.number)
def test_a_fault_is_at_one_place(fault: mutants.Fault) -> None:
    text = (mutants.ROOT / fault.file).read_text()
    assert text.count(fault.find) == 1, f"fault {fault.number}: write it anew for {fault.file}"
    assert f"MUTANT({fault.number})" in mutants.mutated(fault, text)
    assert fault.near


def test_there_are_40_and_three_in_each_layer() -> None:
    assert [fault.number for fault in FAULTS] == list(range(1, 41))
    layers = Counter(fault.layer for fault in FAULTS)
    assert min(layers.values()) >= 3
    assert len(layers) == 12


def test_what_is_found_no_more_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps({"1": "a_test", "2": "b_test", "3": mutants.NOT_FOUND}))
    new.write_text(json.dumps({"1": {"found_by": "c_test"}, "2": {"found_by": mutants.NOT_FOUND}}))
    assert mutants.compare(old, new) == 1
    assert "2: was found by b_test\n2 were found, 1 are; 1 are no more" in capsys.readouterr().out
    assert mutants.compare(old, old) == 0
