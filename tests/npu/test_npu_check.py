"""`collops npu-check`: its report on the simulated CANN, and what it says of what is wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from collops.golden.cases import OPERATORS, inputs

from collops.npu_check.checks import OWN, check_names, compared, smallest_case
from collops.npu_check.command import own_limit, run_part
from patience import patience


def npu_check(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a folder, with the report in it."""
    return subprocess.run(
        [sys.executable, "-m", "collops", "npu-check", *arguments],
        capture_output=True,
        text=True,
        timeout=patience(110),
        cwd=folder,
        env={**os.environ, **env},
    )


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The name of every check with its state and text."""
    found = re.findall(
        r"^simulated:   (\w[^\n]*?) +(passed|FAILED|not supported)(.*)", done.stdout, re.MULTILINE
    )
    return {name: f"{state}{text}" for name, state, text in found}


def test_the_report_of_one_operator(tmp_path: Path) -> None:
    busy = socket.create_server(("", 0), family=socket.AF_INET)
    port = str(busy.getsockname()[1])
    done = npu_check(
        tmp_path, "--only", "reduce_scatter_v", HCCL_BUFFSIZE="64", HCCL_IF_BASE_PORT=port,
        ASCEND_RT_VISIBLE_DEVICES="5,3",
    )  # fmt: skip
    busy.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "collops-npu-report.txt").read_text() == done.stdout
    assert all(line.startswith("simulated") for line in done.stdout.splitlines())
    found = outcomes(done)
    assert list(found) == [
        "reduce_scatter_v",
        *(f"reduce_scatter_v, {size}" for size in ("1 KiB", "1 MiB", "16 MiB")),
    ]
    assert found["reduce_scatter_v"].startswith("passed: reduce_scatter_v.p2.")
    assert all(re.fullmatch(r"passed: [0-9.]+ us", text) for text in list(found.values())[1:])
    assert re.search(r"libhccl\.so +/.*/libhccl\.so$", done.stdout, re.MULTILINE)
    assert re.search(r"SoC +Ascend910B", done.stdout)
    assert re.search(r"HCCL_BUFFSIZE +64$", done.stdout, re.MULTILINE)
    assert re.search(rf"host ports +{port} to .*: taken: {port}(,|;)", done.stdout)
    assert re.search(r"NPU ports +16666: one process for each NPU", done.stdout)
    assert re.search(r"physical ids +npu:0 is 5, npu:1 is 3 \(", done.stdout)
    assert re.search(r"buffers +2 x HCCL_BUFFSIZE = 128 MB .* on a grid: 384 MB", done.stdout)
    assert re.search(r"free memory +\d+ of \d+ MB of npu:0", done.stdout)
    assert "summary: 4 passed, 0 FAILED, 0 not supported" in done.stdout
    assert "nothing here was measured on an NPU" in done.stdout


def test_what_no_case_has(tmp_path: Path) -> None:
    for name in OWN:
        found = run_part("checks", [name, "--ranks", "3", "--seconds", "100"], 100)
        assert found == {"state": "passed", "text": ""}, name


def test_wrong_sums_are_shown() -> None:
    right = np.array([[1, 2]], np.float16)
    assert compared(0, right, right) == ""
    assert compared(1, right + 1, right) == "rank 1: got [[2.0, 3.0]], not [[1.0, 2.0]]"


def test_it_waits_longer_than_hccl() -> None:
    assert own_limit({}) == 150
    assert own_limit({"HCCL_CONNECT_TIMEOUT": "600"}) == 630


def test_a_failure_does_not_end_the_other_checks(tmp_path: Path) -> None:
    done = npu_check(
        tmp_path, "--only", "er_v", "--output", "r", COLLOPS_SIM_FAIL="HcclAllGatherV:1:4"
    )
    assert done.returncode == 1
    found = outcomes(done)
    assert found["all_gather_v"].startswith("FAILED")
    assert "HCCL_E_INTERNAL" in done.stdout
    assert found["reduce_scatter_v"].startswith("passed")
    assert (tmp_path / "r").read_text() == done.stdout


def test_what_hccl_does_not_support_has_not_passed(tmp_path: Path) -> None:
    refused = "HcclAllReduce:1:5"
    done = npu_check(tmp_path, "--only", "all_reduce, 1 K", COLLOPS_SIM_FAIL=refused)
    [text] = outcomes(done).values()
    assert text.startswith("not supported: ") and "HCCL_E_NOT_SUPPORT" in text
    assert done.returncode == 1  # nothing passed


def test_without_a_library_it_says_what_to_install(tmp_path: Path) -> None:
    done = npu_check(tmp_path, LD_LIBRARY_PATH="")
    reason = "libhccl.so: cannot open shared object file: No such file or directory"
    assert (done.returncode, done.stderr) == (1, f"collops npu-check: {reason}\n")
    assert f"no NPU can be used: {reason}\nwhat to install: Ascend's driver" in done.stdout
    assert "simulated" not in done.stdout.replace(os.environ["COLLOPS_SIM_CANN"], "")


def test_a_library_that_crashes_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "crash.c"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "libopapi.so"], check=True)
    path = os.pathsep.join([str(tmp_path), os.environ["LD_LIBRARY_PATH"]])
    done = npu_check(tmp_path, LD_LIBRARY_PATH=path)
    assert done.returncode == 1
    assert "ended by SIGABRT" in done.stdout


def test_a_check_that_hangs_is_ended() -> None:
    arguments = ["all_gather_v", "--ranks", "2", "--seconds", "100"]
    assert run_part("checks", arguments, 0.2)["problem"].startswith("did not end within 0.2 s")


def test_a_process_that_cannot_be_ended_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in a session of its own stands for it: it keeps the files of the output open."""
    program, pid = tmp_path / "part", tmp_path / "pid"
    program.write_text(
        f"#!/bin/sh\nsetsid sleep 60 &\necho $! > {pid}\necho 'last words' >&2\nsleep 60\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    begin = time.monotonic()
    try:
        found = run_part("facts", [], 1.0)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    assert found == {"problem": "did not end within 1 s; it was ended\nlast words"}
    assert time.monotonic() - begin < patience(30)


def test_a_rank_that_hangs_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLOPS_SIM_DELAY_US", "60000000")
    found = run_part("checks", ["all_gather_v", "--ranks", "2", "--seconds", "2"], 60)
    assert (found["state"], "no report within 2 s" in found["text"]) == ("FAILED", True)


def test_every_operator_has_a_check_with_data_on_every_rank() -> None:
    names = [name for name in check_names() if name not in OWN]
    assert {name.partition(".")[0] for name in names} == set(OPERATORS)
    assert sum(name.startswith("linear_parallel.") for name in names) == 5
    for name in names:
        case = smallest_case(name, 2)
        assert case is not None and case.rank_size == 2
        assert all(next(iter(own.values())).size for own in inputs(case))
        assert case.linear is None or not case.linear.sum_leaves


@pytest.mark.parametrize("arguments", [["--ranks", "1"], ["--seconds", "x"], ["--output", "/no/r"]])
def test_wrong_arguments_end_with_status_2(tmp_path: Path, arguments: list[str]) -> None:
    done = npu_check(tmp_path, *arguments)
    assert done.returncode == 2
    assert arguments[0] in done.stderr


def test_more_ranks_than_npus_are_refused(tmp_path: Path) -> None:
    done = npu_check(tmp_path, "--ranks", "64")
    assert done.returncode == 1
    assert re.search(r"--ranks 64: each rank needs an NPU, and torch_npu finds \d+$", done.stderr)


def test_help_names_every_option(tmp_path: Path) -> None:
    said = npu_check(tmp_path, "--help").stdout
    for option in ("--output", "--ranks", "--seconds", "--only", "Exit status"):
        assert option in said
