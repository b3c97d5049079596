"""Where HCCL has no V calls, broadcasts and reductions give the same results.

And what is said where libraries or SoCs lack something.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.npu.npu_ranks import error_of

SIMULATOR = os.environ.get("COLLOPS_SIM_CANN", "")
USUAL = "Ascend910B1"
BOTH = "HcclAllGatherV and HcclReduceScatterV are replaced by a broadcast or a reduction per rank"
LACK = ", which is slower: HCCL does not have it on "
SOCS = {
    "Ascend910_9391": "",
    "Ascend910A": f"{BOTH}{LACK}",
    "Ascend910B": f"{BOTH}{LACK}",  # of the first generation: A2 has a number behind it
    "Ascend950PR": "",
}
RANKS = 3


def results(npu: Any, comm: Any) -> list[Any]:
    """Uneven gathers and reductions, gaps included, and a product with both."""
    rank, size = comm.rank, comm.size
    rows = [2 * r % 5 for r in range(size)]
    own, total = rows[rank], sum(rows)
    found: list[Any] = []
    for dtype in (np.float32, np.float64, np.bool_):
        x = (np.arange(own * 2).reshape(own, 2) + rank).astype(dtype)
        found.append(npu.array(comm.all_gatherv(npu.tensor(x), rows)).tolist())
    for op in ("sum", "max", "min"):
        x = np.arange(total * 2, dtype=np.int32).reshape(total, 2) * (rank + 1)
        found.append(npu.array(comm.reduce_scatterv(npu.tensor(x), rows, op=op)).tolist())
    param = collops.AllGatherVParam(rank=rank, rank_size=size, hccl_comm=comm)
    counts, displs = np.array([1, 2, 1]), np.array([5, 2, 0])
    ins = [npu.tensor(np.full(int(counts[rank]), rank + 1.0)), counts[rank : rank + 1]]
    [gaps] = collops.Operation(param).forward([*ins, counts, displs, np.empty(7, np.float16)])
    x, weight = (npu.tensor(a.astype(np.float16)) for a in (np.ones((total, 2)), np.eye(2)))
    summed = comm.matmul_reduce_scatter(x, weight, rows)
    gathered = comm.all_gather_matmul(x[:own], weight, rows)
    return [*found, *(npu.array(result).tolist() for result in (gaps, summed, gathered))]


def warnings_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("collops: warning: ")]


def on_soc(npu: Any, soc: str) -> list[Any]:
    """The results of ranks on such an NPU, which torch_npu takes for the usual one."""

    def work(rank: int) -> list[Any]:
        npu.choose(rank)
        os.environ["COLLOPS_SIM_SOC"] = soc
        found = results(npu, collops.init(backend="hccl"))
        collops.init(backend="hccl", comm_domain="again").all_gather(npu.tensor(np.ones(1)))
        return found

    return run_ranks(work, RANKS)


def test_socs(npu: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # the lines go to standard error
    usual = on_soc(npu, USUAL)
    assert not warnings_of(capfd.readouterr().err)
    for soc, said in SOCS.items():
        assert on_soc(npu, soc) == usual
        lines = [f"collops: warning: {said}{soc}"] if said else []
        assert warnings_of(capfd.readouterr().err) == lines * RANKS


PROGRAM = """
import sys
sys.path[:0] = {folders!r}
import torch, torch_npu
from tests.devices.on_npu import Npu
from collops.testing import run_ranks
import collops
from tests.npu import test_replaced_calls
def work(rank):
    npu = Npu()
    npu.choose(rank)
    return {call}
if __name__ == "__main__":
    for result in run_ranks(work, {ranks}):
        print("RESULT", repr(result))
"""


def in_new_processes(libraries: str, call: str, ranks: int = RANKS) -> tuple[list[Any], str]:
    """What the ranks of a new program return, and what it writes to stderr."""
    root = Path(__file__).resolve().parents[2]
    folders = [str(root), str(root / "tools")]
    program = PROGRAM.format(folders=folders, call=call, ranks=ranks)
    env = os.environ | {"LD_LIBRARY_PATH": libraries}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return [eval(line.removeprefix("RESULT ")) for line in lines], done.stderr


def test_a_library_without_the_symbols(npu: Any) -> None:
    call = "test_replaced_calls.results(npu, collops.init(backend='hccl'))"
    found, err = in_new_processes(f"{SIMULATOR}/without-v:{SIMULATOR}", call)
    assert found == on_soc(npu, USUAL)
    said = f"collops: warning: {BOTH}, which is slower: this libhccl.so does not have it"
    assert warnings_of(err) == [said] * RANKS


def product_error(npu: Any) -> tuple[int, str, list[float]]:
    """What a product meets, and a sum after it."""
    comm = collops.init(backend="hccl")
    x = npu.tensor(np.ones((2, 2), np.float32))
    error = error_of(lambda: comm.matmul_all_reduce(x, x))
    return error.code, error.message, npu.array(comm.all_reduce(x)).reshape(-1).tolist()


def test_without_operators_only_products_are_refused(tmp_path: Path) -> None:
    for library in Path(SIMULATOR).glob("*.so"):
        if library.name != "libopapi.so":
            (tmp_path / library.name).symlink_to(library)
    found, _ = in_new_processes(str(tmp_path), "test_replaced_calls.product_error(npu)", 2)
    for code, message, total in found:
        assert code == 103
        assert "libopapi.so: cannot open shared object file" in message
        assert total == [2.0] * 4


def test_ranks_that_differ_in_it(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        npu.choose(rank)
        os.environ["COLLOPS_SIM_SOC"] = ("Ascend910B1", "Ascend910A")[rank]
        error = error_of(lambda: collops.init(backend="hccl"))
        return error.code, error.message

    for code, message in run_ranks(work, 2):
        assert code == 102
        assert "HcclAllGatherV is there on rank 0" in message
        assert "missing on rank 1" in message


def uneven_calls(npu: Any, ranks: int, **env: str) -> list[Any]:
    """A gather and a sum, twice, of ranks that `env` says what HCCL answers; or their errors."""

    def work(rank: int) -> Any:
        npu.choose(rank)
        os.environ.update({name: value.split()[rank % 2] for name, value in env.items()})
        comm, rows = collops.init(backend="hccl"), list(range(ranks))
        x = npu.tensor(np.arange(rank, dtype=np.int32) + 10 * rank)
        try:
            gathered = [npu.array(comm.all_gatherv(x, rows)).tolist() for _ in range(2)]
            terms = npu.tensor(np.full(sum(rows), rank + 1, np.int32))
            summed = [npu.array(comm.reduce_scatterv(terms, rows)).tolist() for _ in range(2)]
        except collops.Error as error:
            return error.code, error.message
        return gathered, summed

    return run_ranks(work, ranks, env={"HCCL_CONNECT_TIMEOUT": "1"})


def uneven_results(ranks: int) -> list[Any]:
    rows = [10 * rank + i for rank in range(ranks) for i in range(rank)]
    return [([rows] * 2, [[ranks * (ranks + 1) // 2] * rank] * 2) for rank in range(ranks)]


@pytest.mark.parametrize(
    ("ranks", "env", "said"),
    [
        (
            3,
            {"COLLOPS_SIM_WITHOUT": "HcclAllGatherV HcclAllGatherV"},
            "collops: warning: HcclAllGatherV is replaced by a broadcast or a reduction per rank, "
            "which is slower: HcclAllGatherV returned 5 (HCCL_E_NOT_SUPPORT)",
        ),
        (
            5,
            {"COLLOPS_SIM_SOC": "Ascend310P3 Ascend310P3"},
            "collops: warning: HcclAllGatherV is replaced by a broadcast or a reduction per rank, "
            "which is slower: HcclAllGatherV returned 5 (HCCL_E_NOT_SUPPORT)",
        ),
    ],
    ids=["a topology", "more than 4 ranks of a 310P"],
)
def test_a_call_that_hccl_turns_out_not_to_have(
    npu: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch, ranks: int, env: Any, said: str
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # the lines go to standard error
    assert uneven_calls(npu, ranks, **env) == uneven_results(ranks)
    lines = warnings_of(capfd.readouterr().err)
    assert len(lines) == ranks
    assert all(line.startswith(said) for line in lines), lines


def test_ranks_that_hccl_answers_differently_are_named(npu: Any) -> None:
    for code, message in uneven_calls(npu, 3, COLLOPS_SIM_WITHOUT="none HcclAllGatherV"):
        assert code == 102
        said = "HcclAllGatherV returned 5 (HCCL_E_NOT_SUPPORT) on rank 1 of 3 ranks, and not on"
        assert said in message, message


def test_a_310p_scatters_only_sums(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        npu.choose(rank)
        os.environ["COLLOPS_SIM_SOC"] = "Ascend310P3"
        comm = collops.init(backend="hccl")
        x = npu.tensor(np.ones(3, np.int32))
        error = error_of(lambda: comm.reduce_scatterv(x, [1, 2], op="max"))
        assert npu.array(comm.reduce_scatterv(x, [1, 2])).tolist() == [2] * (rank + 1)
        return error.code, error.message

    for code, message in run_ranks(work, 2):
        assert code == 103
        assert "scatters no max in parts of uneven size on Ascend310P3; it takes sum" in message
