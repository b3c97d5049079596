"""examples/torch/lost_rank.py: a rank is killed and comes back, and the loss is as without that."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

importlib.import_module("torch._dynamo")  # the optimizer imports it: here once for all ranks

from patience import patience  # noqa: E402
from tests.programs import FORK, run  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "torch" / "lost_rank.py"
RANKS = 3


@pytest.fixture(scope="module")
def example() -> Any:
    torch.set_num_threads(1)  # threads of the parent would be missing in forked ranks
    spec = importlib.util.spec_from_file_location("lost_rank", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_forked(example: Any, output: Path, *arguments: str) -> list[int]:
    """The statuses of all processes, in the order of their ends, as `collops run --restart 1`."""
    job = f"lost-rank-{os.getpid()}-{time.monotonic_ns()}"

    def main(rank: int, restarts: int) -> None:
        os.environ.update(
            COLLOPS_JOB_ID=job,
            COLLOPS_RANK=str(rank),
            COLLOPS_RANK_SIZE=str(RANKS),
            COLLOPS_RESTARTS=str(restarts),
        )
        with output.open("a") as file, contextlib.redirect_stdout(file):
            status = example.main(arguments)
        raise SystemExit(status)

    def start(rank: int, restarts: int) -> Any:
        process = FORK.Process(target=main, args=(rank, restarts))
        process.start()
        return process

    ranks, statuses = {rank: start(rank, 0) for rank in range(RANKS)}, []
    end = time.monotonic() + patience(60)
    try:
        while ranks and time.monotonic() < end:
            for rank, process in list(ranks.items()):
                process.join(0.02)
                if process.exitcode is not None:
                    del ranks[rank]
                    statuses.append(process.exitcode)
                    if process.exitcode and len(statuses) == 1:
                        ranks[rank] = start(rank, 1)
    finally:
        for process in ranks.values():
            process.kill()
            process.join()
    return statuses


def check_lines(lines: list[str], ranks: int) -> tuple[str, str]:
    """The last loss of a training, and that of one which has lost no rank."""
    lost, fewer, again, verdict = lines
    assert lost.startswith("step 4: all_reduce") and "rank 1 (pid" in lost
    assert (fewer, again) == (f"step 4: {ranks - 1} ranks", f"step 8: {ranks} ranks")
    found, calm = verdict.removeprefix("loss ").split(", as without a loss: ")
    return found, calm


def losses_of(example: Any, output: Path, *arguments: str) -> tuple[str, str]:
    """As check_lines(), of a training on three ranks, so that sums are of two after the loss."""
    statuses = run_forked(example, output, *arguments)
    lines = output.read_text()
    assert statuses == [-signal.SIGKILL, 0, 0, 0], lines
    return check_lines(lines.splitlines(), RANKS)


def test_the_loss_has_the_bits_of_one_rank(example: Any, tmp_path: Path) -> None:
    found, calm = losses_of(example, tmp_path / "output")
    assert found == calm


def test_the_loss_is_that_of_one_rank_without_leaves(example: Any, tmp_path: Path) -> None:
    found, calm = losses_of(example, tmp_path / "output", "--leaves", "0")
    assert float(found) == pytest.approx(float(calm), rel=example.BOUND)


def test_its_command_with_two_ranks(tmp_path: Path) -> None:
    """Two, as each process takes 3 seconds for its imports."""
    command = [sys.executable, "-m", "collops", "run", "-n", "2", "--restart", "1"]
    done = run([*command, str(SCRIPT)], capture_output=True, cwd=tmp_path, timeout=patience(120))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.removeprefix("[0] ") for line in done.stdout.splitlines()]
    found, calm = check_lines([line for line in lines if line.startswith(("step", "loss"))], 2)
    assert found == calm


def test_another_loss_or_weight_is_reported(example: Any) -> None:
    calm, found = example.Training(12), example.Training(12)
    for one in (calm, found):
        one.losses = [2.0, 1.0]
    assert example.agree(found, calm)
    found.losses = [2.0, 1.0000001]
    assert not example.agree(found, calm)
    found.leaves = 0
    assert example.agree(found, calm)
    found.losses = [2.0, 1.0001]
    assert not example.agree(found, calm)
    found.leaves, found.losses = 12, calm.losses
    with torch.no_grad():
        found.weights[0][0, 0] += 1e-6
    assert not example.agree(found, calm)
