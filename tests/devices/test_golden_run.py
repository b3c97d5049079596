"""`collops golden run --backend cuda|nccl|hccl`: case files and golden's cases on tensors of
devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from collops.golden.case_files import write_cases
from collops.golden.cases import all_cases

from tests.devices.golden_runs import BACKENDS, REFUSED, SAMPLES, counted, golden_run


@pytest.mark.timeout(330)
@pytest.mark.parametrize("backend", BACKENDS)
def test_samples_of_every_operator_run_or_are_refused_with_the_reason(backend: str) -> None:
    files = sorted(SAMPLES.glob("*.csv"))
    done = golden_run(*files, "--backend", backend)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = sum(len(file.read_text().splitlines()) - 1 for file in files)
    assert len(files) > 8
    refused = REFUSED[backend]
    lacking = sum(refused.values())
    assert counted(done) == ([cases - lacking, 0, 0, lacking], refused)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrong_element_of_a_device_is_found(backend: str, tmp_path: Path) -> None:
    [case] = all_cases("all_gather_v", text="p2.shares-3-5")
    manifest = write_cases([case], tmp_path)
    path = tmp_path / f"{case.id}.npz"
    with np.load(path) as tensors:
        changed = {name: tensors[name].copy() for name in tensors.files}
    changed["rank1/output"][2, 1] += 1
    np.savez(path, **changed)
    done = golden_run(manifest, "--backend", f"shm={backend}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "different: 1 of 128 elements" in done.stdout


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_are_in_rank_order_or_within_the_bounds_of_hccl(backend: str, tmp_path: Path) -> None:
    cases = all_cases("reduce_scatter_v", text="p4.data-random-float")
    manifest = write_cases(cases, tmp_path)
    done = golden_run(manifest, "--backend", backend)
    assert done.returncode == 0, done.stdout + done.stderr
    assert counted(done) == ([len(cases), 0, 0, 0], {})
