"""`collops golden run --backend hccl`: case files and golden's cases on tensors of torch_npu."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from collops.golden.case_files import write_cases
from collops.golden.cases import all_cases

from patience import patience

SAMPLES = Path(__file__).resolve().parents[2] / "examples" / "golden"


def golden_run(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = "from collops.cli import main; raise SystemExit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, "golden", "run", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=patience(110),
    )


def closing_line(done: subprocess.CompletedProcess[str]) -> str:
    return re.sub(r"; [0-9.]+ cases per second$", "", done.stdout.splitlines()[-1])


# AllToAll's transpose copies columns, which runs on the CPU alone.
OF_THE_CPU = 3


def test_samples_of_every_operator_pass_on_npu_tensors() -> None:
    files = sorted(SAMPLES.glob("*.csv"))
    done = golden_run(*files, "--backend", "hccl")
    assert done.returncode == 0, done.stdout + done.stderr
    cases = sum(len(file.read_text().splitlines()) - 1 for file in files)
    assert len(files) > 8
    assert closing_line(done) == (
        f"{cases - OF_THE_CPU} passed, 0 failed, 0 differ from ATB by intent, "
        f"{OF_THE_CPU} skipped ({OF_THE_CPU} backend hccl does not run it: "
        "AllToAll: transpose copies columns on the CPU; x is on npu:0)"
    )


def test_a_backend_is_replaced_by_hccl() -> None:
    file = SAMPLES / "all_gather_v.csv"
    done = golden_run(file, "--backend", "hccl=hccl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, 0 failed" in closing_line(done)


def test_a_wrong_element_of_an_npu_is_found(tmp_path: Path) -> None:
    [case] = all_cases("all_gather_v", text="p2.shares-3-5")
    manifest = write_cases([case], tmp_path)
    path = tmp_path / f"{case.id}.npz"
    with np.load(path) as tensors:
        changed = {name: tensors[name].copy() for name in tensors.files}
    changed["rank1/output"][2, 1] += 1
    np.savez(path, **changed)
    done = golden_run(manifest, "--backend", "shm=hccl")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "different: 1 of 128 elements" in done.stdout


def test_sums_of_hccl_may_have_another_order(tmp_path: Path) -> None:
    cases = all_cases("reduce_scatter_v", text="p4.data-random-float32")
    manifest = write_cases(cases, tmp_path)
    done = golden_run(manifest, "--backend", "hccl")
    assert done.returncode == 0, done.stdout + done.stderr
