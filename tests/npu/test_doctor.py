"""The output of `collops doctor` if HCCL can be opened."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def doctor(env: dict[str, str], status: int = 0) -> str:
    command = [sys.executable, "-m", "collops", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def backend_row(report: str) -> str:
    return next(line for line in report.splitlines() if line.startswith("  hccl"))


def test_it_is_ready_and_sums_are_in_its_own_order() -> None:
    row = backend_row(doctor(dict(os.environ)))
    assert "ready" in row
    assert "HCCL's order" in row


def test_a_missing_library_is_named() -> None:
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    report = doctor(env, 1)
    assert "libhccl.so: cannot open shared object file" in backend_row(report)
    assert "problems   the default of structs: backend hccl: libhccl.so: cannot open" in report


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "not set: HCCL's order of additions"),
        ("", "empty: HCCL's order of additions"),
        ("false", "false: HCCL's order of additions"),
        ("true", "true: HCCL documents the same bits on every run"),
        ("TRUE", "TRUE: HCCL documents the same bits on every run"),
        ("strict", "strict: as true, and with the same order"),
        ("yes", "yes: not a valid value, which are false, true, strict"),
    ],
)
def test_it_says_what_the_order_of_sums_depends_on(value: str | None, words: str) -> None:
    env = {name: text for name, text in os.environ.items() if name != "HCCL_DETERMINISTIC"}
    report = doctor(env if value is None else env | {"HCCL_DETERMINISTIC": value})
    assert f"\nHCCL\n  HCCL_DETERMINISTIC  {words}" in report
