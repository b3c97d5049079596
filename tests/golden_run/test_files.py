"""`collops golden run` with tensors of files, and with files that say less than they should."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collops.golden.case_files import write_cases
from collops.golden.cases import all_cases

from collops.cli import main
from patience import patience
from tests import programs

CaseFile = Callable[..., Path]
NONE_SKIPPED = "0 differ from ATB by intent, 0 skipped"


def golden(*arguments: object) -> subprocess.CompletedProcess[str]:
    return programs.run_forked(main, ["golden", *map(str, arguments)], timeout=patience(110))


def closing_line(done: subprocess.CompletedProcess[str]) -> str:
    return re.sub(r"; [0-9.]+ cases per second$", "", done.stdout.splitlines()[-1])


def test_a_case_without_expected_outputs_fails_and_others_run(tmp_path: Path) -> None:
    cases = [
        *all_cases("broadcast", text="p2.")[:2],
        *all_cases("all_gather_v", text="p2.shares-3-5"),
    ]
    manifest = write_cases(cases, tmp_path)
    for case, kept in ((cases[0], "/x"), (cases[2], "/recvCounts")):
        path = tmp_path / f"{case.id}.npz"
        with np.load(path) as tensors:
            few = {name: tensors[name] for name in tensors.files if name.endswith(kept)}
        np.savez(path, **few)
    done = golden("run", manifest, "--junit", tmp_path / "out.xml")
    assert closing_line(done) == f"1 passed, 2 failed, {NONE_SKIPPED}", done.stdout + done.stderr
    assert "golden cannot compute the expected outputs: the case has none" in done.stdout
    assert f"{cases[2].id}.npz: has no rank0/x" in done.stdout
    assert "Traceback" not in done.stdout
    assert (tmp_path / "out.xml").exists()


def test_data_of_a_kind_that_golden_does_not_make_is_taken_from_the_file(tmp_path: Path) -> None:
    cases = [case for name in ("all_gather", "all_reduce") for case in all_cases(name, text="p2.s")]
    manifest = write_cases(cases[:2] + cases[-2:-1], tmp_path)
    manifest.write_text(re.sub(r'"kind": "\w+"', '"kind": "measured"', manifest.read_text()))
    done = golden("run", manifest)
    assert closing_line(done) == f"3 passed, 0 failed, {NONE_SKIPPED}", done.stdout + done.stderr


def test_tensors_that_no_machine_has_room_for(case_file: CaseFile) -> None:
    path = case_file(
        {"InShape": "800000000000,5;1;2;2;8", "expected": "I:ERROR_INVALID_TENSOR_SIZE"},
        {"OutShape": "800000000000,5", "expected": "S:ERROR_INVALID_TENSOR_DIM"},
    )
    done = golden("run", path)
    assert closing_line(done) == f"2 passed, 0 failed, {NONE_SKIPPED}", done.stdout


def test_named_files_are_read_if_infer_shape_must_fail(case_file: CaseFile, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 6), np.float16))
    cells = {"InTensorFile": "x.npy", "expected": "I:ERROR_INVALID_TENSOR_DIM"}
    done = golden("run", case_file({**cells, "InShape": "4,5;1;3;2;8"}))
    assert "x.npy has shape [4, 6], the row says [4, 5]" in done.stdout


def test_a_broadcasts_expected_x_may_be_a_file(case_file: CaseFile, tmp_path: Path) -> None:
    cells = {
        "operator": "BroadcastOperation",
        "InNum": 1,
        "InDType": "float16",
        "InFormat": "nd",
        "InShape": "4,5",
        "DataGenType": "one",
        "OutNum": 0,
        "OutDType": "",
        "OutFormat": "",
        "OutShape": "",
        "OutTensorFile": "y.npy",
    }
    for value, line in ((1, "1 passed, 0 failed"), (3, "0 passed, 1 failed")):
        np.save(tmp_path / "y.npy", np.full((4, 5), value, np.float16))
        done = golden("run", case_file(cells))
        assert closing_line(done) == f"{line}, {NONE_SKIPPED}", done.stdout


SAYS = "cases.csv:2: "


@pytest.mark.parametrize(
    ("saved", "cells", "said"),
    [
        (np.zeros((5, 4), np.float16), {}, [SAYS, "x.npy has shape [5, 4], the row says [4, 5]"]),
        (np.zeros((4, 5), np.int8), {}, [SAYS, "x.npy holds int8, the row says float16"]),
        (np.array([None] * 20).reshape(4, 5), {}, ["x.npy: holds Python objects"]),
        (b"no array", {}, ["x.npy: "]),
        ("x.bin", {"InTensorFile": "x.bin"}, ["x.bin: has no line $End=1"]),
        (None, {"InTensorFile": "", "dtype": "int8", "DataGenRange": "0.2,0.7"}, ["0.2"]),
        (None, {"InTensorFile": "", "InShape": "4000000000000,5;1;2;2;8"}, ["got MemoryError on "]),
    ],
    ids=["shape", "dtype", "pickle", "npy", "bin", "range", "memory"],
)
def test_a_fault_of_the_data_is_said_in_one_line(
    case_file: CaseFile, tmp_path: Path, saved: Any, cells: dict[str, Any], said: list[str]
) -> None:
    if isinstance(saved, np.ndarray):
        np.save(tmp_path / "x.npy", saved)
    elif saved is not None:
        (tmp_path / "x.bin").write_bytes(b"nothing")
        (tmp_path / "x.npy").write_bytes(b"nothing")
    done = golden("run", case_file({"InTensorFile": "x.npy", **cells}))
    failed, expected, got = done.stdout.splitlines()[:-1]
    assert failed.startswith("FAILED ") and expected == "  expected NO_ERROR"
    assert got.startswith("  got ") and all(words in got for words in said), got


@pytest.mark.parametrize("word", ["outputs", "inputs"])
def test_files_of_a_row_are_honoured(case_file: CaseFile, tmp_path: Path, word: str) -> None:
    data: dict[str, Any] = {"outputs": np.full((8, 5), 3, np.float16)}
    for rank in range(2):
        np.save(tmp_path / f"x{rank}.npy", np.full((4, 5), 3, np.float16))
    np.save(tmp_path / "y.npy", data["outputs"])
    cells = {"InTensorFile": "x{rank}.npy;;;;"} if word == "inputs" else {}
    done = golden("run", case_file({**cells, "OutTensorFile": "y.npy"}))
    assert done.returncode == (0 if word == "inputs" else 1), done.stdout


def test_a_tensor_file_that_is_not_there_is_found_before_the_run(case_file: CaseFile) -> None:
    path = case_file({"InTensorFile": "nope.npy"}, {})
    done = golden("run", path)
    assert f"{path}:2: column InTensorFile: nope.npy is not beside the case file" in done.stdout
    assert closing_line(done) == f"1 passed, 1 failed, {NONE_SKIPPED}", done.stdout
