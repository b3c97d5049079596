"""Ranks that do wrong: every kind of fault fails its case, and only that one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.golden_run.jobs import read_jobs
from collops.golden_run.rank import Report, execute
from collops.golden_run.runner import FAILED, PASSED, SKIPPED, Outcome, Runner
from collops.launch import processes
from patience import patience
from tests import programs

CaseFile = Callable[..., Path]
Fault = Callable[[Any, int, Report], Report]


def outcomes(
    path: Path, fault: Fault, *, timeout: float = patience(30.0), rank: int = 1, number: int = 2
) -> list[Outcome]:
    """Runs a file in which one rank does something else in the case of that number."""

    def work(call: Any, own: int) -> Report:
        report = execute(call, own)
        if own == rank and call.row.number == number:
            return fault(call, own, report)
        return report

    runner = Runner({"COLLOPS_BACKEND": "shm"}, timeout=timeout, work=work)
    return list(runner.run(read_jobs([path])))


def failure(found: list[Outcome]) -> str:
    """The text of the second case, the only one that failed."""
    assert [outcome.state for outcome in found] == [PASSED, FAILED, PASSED]
    return found[1].text


def with_output(change: Callable[[Any], Any]) -> Fault:
    def fault(call: Any, own: int, report: Report) -> Report:
        [output] = report.outputs
        return replace(report, outputs=(change(output.copy()),))

    return fault


def test_a_timeout_beyond_what_a_poll_can_count_is_long(case_file: CaseFile) -> None:
    found = outcomes(case_file({}, {}), lambda call, own, report: report, timeout=1e10)
    assert [outcome.state for outcome in found] == [PASSED, PASSED]


def test_an_output_that_was_not_written(
    case_file: CaseFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    import collops

    right = collops.Operation.execute

    def execute_or_not(self: Any, ins: Any, outs: Any, *rest: Any, **named: Any) -> None:
        if ins[0].shape != (6, 5):
            right(self, ins, outs, *rest, **named)

    monkeypatch.setattr(collops.Operation, "execute", execute_or_not)
    path = case_file({}, {"rows": 6}, {})
    text = failure(outcomes(path, lambda call, own, report: report))
    assert "poison" in text, text


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "killed by SIGKILL"),
        (signal.SIGRTMIN + 3, f"killed by signal {signal.SIGRTMIN + 3}"),
    ],
)
def test_a_rank_that_is_killed(case_file: CaseFile, number: int, words: str) -> None:
    def fault(call: Any, own: int, report: Report) -> Report:
        os.kill(os.getpid(), number)
        return report

    begin = time.monotonic()
    text = failure(outcomes(case_file({}, {}, {}), fault))
    assert "got died on rank 1" in text
    assert words in text
    assert time.monotonic() - begin < patience(20)


def test_a_rank_that_dies_before_the_others_have_its_data(case_file: CaseFile) -> None:
    path = case_file({}, {}, {})

    def work(call: Any, own: int) -> Report:
        if own == 1 and call.row.number == 2:
            os._exit(9)
        return execute(call, own)

    runner = Runner({"COLLOPS_BACKEND": "shm"}, timeout=patience(60), work=work)
    begin = time.monotonic()
    text = failure(list(runner.run(read_jobs([path]))))
    assert "exit code 9" in text
    assert "E:ERROR_PEER_LOST on rank 0" in text
    assert time.monotonic() - begin < patience(30)


def test_a_rank_that_hangs(case_file: CaseFile) -> None:
    def fault(call: Any, own: int, report: Report) -> Report:
        time.sleep(1000)
        return report

    begin = time.monotonic()
    text = failure(outcomes(case_file({}, {}, {}), fault, timeout=patience(1.5)))
    assert f"got hung on rank 1: no report within {patience(1.5):g} s" in text
    assert 1.4 < time.monotonic() - begin < patience(20)


def test_a_rank_that_stops_in_the_middle_of_its_report(
    case_file: CaseFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = processes.write_all

    def write(descriptor: int, data: bytes) -> None:
        half = len(data) // 2 if len(data) > 4_000_000 else len(data)
        right(descriptor, data[:half])
        if half < len(data):
            os.kill(os.getpid(), signal.SIGSTOP)
            right(descriptor, data[half:])

    monkeypatch.setattr(processes, "write_all", write)
    large = with_output(lambda output: np.zeros(5_000_000, np.uint8))
    begin = time.monotonic()
    text = failure(outcomes(case_file({}, {}, {}), large, timeout=patience(3)))
    stopped = f"got stopped on rank 1: no report within {patience(3):g} s: "
    assert stopped + "a signal or a debugger had" in text
    assert time.monotonic() - begin < patience(30)


def test_a_stopped_rank_is_told_from_those_that_wait_for_it(case_file: CaseFile) -> None:
    path = case_file(*[{"ranks": 3}] * 3)

    def work(call: Any, own: int) -> Report:
        if own == 2 and call.row.number == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        return execute(call, own)

    runner = Runner({"COLLOPS_BACKEND": "shm"}, timeout=patience(1.5), work=work)
    text = failure(list(runner.run(read_jobs([path]))))
    assert "got hung on rank 0, 1: " in text
    assert f"got stopped on rank 2: no report within {patience(1.5):g} s: " in text


def test_ranks_end_quietly_once_nobody_reads_their_reports(case_file: CaseFile) -> None:
    program = (
        "import os, signal, sys, time; from pathlib import Path\n"
        "from collops.golden_run.jobs import read_jobs\n"
        "from collops.golden_run.runner import Runner\n"
        "def work(call, own):\n"
        "    time.sleep(0.5 + own)\n"
        "    if own == 0: os.kill(os.getppid(), signal.SIGKILL)\n"
        "    time.sleep(0.5)\n"
        "    return None\n"
        "list(Runner({}, work=work).run(read_jobs([Path(sys.argv[1])])))"
    )
    # The ranks hold stderr open, so that this ends when they have ended.
    done = subprocess.run(
        [sys.executable, "-c", program, case_file({})], stderr=subprocess.PIPE, timeout=patience(60)
    )
    assert (done.returncode, programs.own(done.stderr.decode())) == (-signal.SIGKILL, "")


def test_a_large_report_comes_whole(case_file: CaseFile) -> None:
    large = with_output(lambda output: np.zeros((7, 700_001), np.float16))
    text = failure(outcomes(case_file({}, {}, {}), large))
    assert "rank 1 has shape [7, 700001], expected [8, 5]" in text


def test_an_exception_that_is_not_ours(case_file: CaseFile) -> None:
    path = case_file({}, {}, {})

    class Torn:
        def __init__(self, call: Any) -> None:
            self._call = call

        def __getattr__(self, name: str) -> Any:
            return getattr(self._call, name)

        def inputs(self, rank: int) -> Any:
            raise ZeroDivisionError("planted")

    def work(call: Any, own: int) -> Report:
        torn = own == 0 and call.row.number == 2
        return execute(Torn(call) if torn else call, own)  # type: ignore[arg-type]

    runner = Runner({"COLLOPS_BACKEND": "shm"}, timeout=patience(30), work=work)
    text = failure(list(runner.run(read_jobs([path]))))
    assert "got ZeroDivisionError on rank 0" in text
    assert "got ZeroDivisionError on rank 0: planted\nTraceback" in text


NEGATIVE = {"rows": 4, "InShape": "4,5;1;3;2;8", "expected": "I:ERROR_INVALID_TENSOR_DIM"}


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (Report(), "got NO_ERROR on rank 1"),
        (
            Report("infer_shape", 9, "ERROR_INVALID_TENSOR_SIZE", "said"),
            "got I:ERROR_INVALID_TENSOR_SIZE on rank 1: said",
        ),
        (Report("setup", 8, "ERROR_INVALID_TENSOR_DIM"), "got S:ERROR_INVALID_TENSOR_DIM"),
        (Report("create", 8, "ERROR_INVALID_TENSOR_DIM"), "got C:ERROR_INVALID_TENSOR_DIM"),
        (Report("data", 8, "ERROR_INVALID_TENSOR_DIM"), "got ERROR_INVALID_TENSOR_DIM"),
    ],
)
def test_a_wrong_code_or_step(case_file: CaseFile, report: Report, words: str) -> None:
    path = case_file(*[NEGATIVE] * 3)
    text = failure(outcomes(path, lambda call, own, right: report))
    assert text.startswith("expected I:ERROR_INVALID_TENSOR_DIM\n")
    assert words in text


def test_an_expected_error_that_does_not_come(case_file: CaseFile) -> None:
    rows: list[dict[str, Any]] = [{}, {"expected": "S:ERROR_INVALID_PARAM"}, {}]
    text = failure(outcomes(case_file(*rows), lambda call, own, report: report))
    assert text == "expected S:ERROR_INVALID_PARAM\ngot NO_ERROR on all ranks"


def test_an_error_of_another_chip(case_file: CaseFile) -> None:
    """It may come or not; another error is none of these."""
    elsewhere = {"SocVersion": "Ascend310P", "expected": "I:ERROR_INVALID_TENSOR_DIM"}
    spoiled = {**elsewhere, "InShape": "4,5;1;3;2;8"}
    other = {**elsewhere, "InShape": "4,5;1;2;2;8", "InDType": "float16;int8;int64;int64;float16"}
    path = case_file(elsewhere, spoiled, other, {**other, "SocVersion": "Ascend910B"})
    found = outcomes(path, lambda call, own, report: report)
    assert [outcome.state for outcome in found] == [SKIPPED, PASSED, FAILED, FAILED]
    assert found[0].text == "the expected error exists on another SoC alone"


def test_an_input_that_was_changed(case_file: CaseFile, monkeypatch: pytest.MonkeyPatch) -> None:
    import collops

    right = collops.Operation.execute

    def execute_and_write(self: Any, ins: Any, outs: Any, *rest: Any, **named: Any) -> None:
        right(self, ins, outs, *rest, **named)
        if ins[0].shape == (6, 5):
            ins[0][0, 0] += 1

    monkeypatch.setattr(collops.Operation, "execute", execute_and_write)
    path = case_file({}, {"rows": 6}, {})
    text = failure(outcomes(path, lambda call, own, report: report))
    assert text.endswith("got a changed input on all ranks: the call has changed input 0")


def test_threads_are_ranks_too(case_file: CaseFile) -> None:
    path = case_file(*[{"ranks": 3, "params": {"commMode": 1}}] * 3)
    found = outcomes(path, lambda call, own, report: report)
    assert [outcome.state for outcome in found] == [PASSED] * 3

    def wrong(output: Any) -> Any:
        output[0, 0] += 1
        return output

    assert "1 of" in failure(outcomes(path, with_output(wrong), rank=2))

    def hang(call: Any, own: int, report: Report) -> Report:
        time.sleep(1000)
        return report

    assert "got hung on all ranks" in failure(outcomes(path, hang, timeout=patience(1.5)))
