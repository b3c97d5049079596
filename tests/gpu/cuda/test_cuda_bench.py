"""`collops bench --backend` on simulated GPUs: every operator, right results, and what rows say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import collops
from collops.bench.gpu import GpuPlace
from collops.bench.operator import OnGpu, Request, Row
from collops.bench.operators import load
from collops.bench.options import parse
from collops.bench.peers import Peers
from collops.bench.variants import MeasuredPoint
from collops.testing import run_ranks
from patience import patience
from tests.gpu.simulated.simulated_driver import Driver

# What a row of a GPU says besides what a row of the host says.
FIELDS = {
    *("simulated", "device", "devices", "driver", "driver_cuda", "nccl", "l2_bytes"),
    *("multiprocessors", "calls", "graph", "buffers", "backend"),
}


def rows_of(tmp_path: Path, name: str, *words: str) -> tuple[list[Row], str]:
    """The rows of a short benchmark, and what it prints."""
    file = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "collops", "bench", name, "--quick", "--iterations", "1"]
    command += ["--json", str(file), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(110))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        assert set(row) >= FIELDS, row
        assert row["simulated"] is True
        assert row["ms_min"] > 0
        assert row["ms_min"] <= row["ms"] <= row["ms_p95"]
        assert row["l2_bytes"] > 0
    assert "SIMULATED: no GPU was used" in done.stdout
    return rows, done.stdout


def by_column(rows: list[Row]) -> dict[str, Row]:
    return {row["column"]: row for row in rows}


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        ("all_gather_v", True),
        ("reduce_scatter_v", False),
        ("all_reduce", False),
        ("all_to_all", True),
    ],
)
def test_every_collective_is_right_beside_nccl(
    gpu: Any, tmp_path: Path, name: str, graph: bool
) -> None:
    words = ["--backend", "cuda", "--ranks", "3", "--sizes", "9600", "--dtype", "f16"]
    words += ["--skew", "3:5"] if name.endswith("_v") else []
    words += ["--graph"] if graph else []
    rows, printed = rows_of(tmp_path, name, *words, "--peers", "nccl")
    found = by_column(rows)
    assert set(found) == {"plain", "limit", "nccl"}, printed
    assert [found[column]["wrong_ranks"] for column in ("plain", "nccl", "limit")] == [0, 0, None]
    assert {row["graph"] for row in rows} == {graph}
    assert {row["calls"] for row in rows} == {2}
    assert found["plain"]["devices"] == [0, 0, 0]
    assert found["plain"]["backend"] == "cuda"
    assert found["plain"]["buffers"] == 16  # as far as it goes to leave the L2
    assert found["plain"]["to_limit"] > 0
    # (P + 1) * S bytes are read and written, of which a copy of n bytes moves 2 n.
    if name.endswith("_v"):
        assert found["limit"]["copied_bytes"] == 4 * 9600 // 2


def test_ranks_on_several_gpus(gpu: Any, tmp_path: Path) -> None:
    words = ["--backend", "nccl", "--ranks", "4", "--devices", "1,0", "--sizes", "4k"]
    rows, _ = rows_of(tmp_path, "all_gather_v", *words, "--skew", "one-owner")
    assert {row["skew"] for row in rows} == {"one-owner"}
    assert {row["column"] for row in rows} == {"plain", "limit"}
    assert {tuple(row["devices"]) for row in rows} == {(1, 0, 1, 0)}
    assert {row["wrong_ranks"] for row in rows if row["column"] == "plain"} == {0}


@pytest.mark.parametrize(
    ("backend", "kind", "graph"),
    [("nccl", "1", False), ("nccl", "4", True), ("cuda", "2", False), ("cuda", "4", True)],
)
def test_products(gpu: Any, tmp_path: Path, backend: str, kind: str, graph: bool) -> None:
    words = ["--backend", backend, "--type", kind, "--dtype", "f16", "--shapes", "24,16,8"]
    words += ["--graph"] if graph else []
    rows, printed = rows_of(tmp_path, "linear_parallel", *words)
    found = by_column(rows)
    assert {row["graph"] for row in rows} == {graph}
    assert ("2 calls in a graph" in printed) == graph
    assert set(found) >= {"fused", "unfused", "gemm"}, printed
    assert (found["fused"]["wrong_ranks"], found["unfused"]["wrong_ranks"]) == (0, 0)
    assert found["fused"]["to_gemm"] > 0
    assert "fused / GEMM" in printed


@pytest.mark.parametrize("graph", [False, True])
def test_a_wrong_result_in_any_buffer_is_found(gpu: Any, graph: bool) -> None:
    """Rank 1 spoils the result of the second of the buffers that calls take turns on; with graphs
    in replays alone."""

    def measure(rank: int) -> list[Row]:
        operator = load("all_gather_v")
        options = parse(operator, ["--backend", "cuda", "--sizes", "2k", "--skew", "even"])
        options.launched = 0
        point = operator.points(options)[0]
        given = OnGpu(backend="cuda", devices=(0,), calls=2, graph=graph)
        request = Request(
            operator="all_gather_v", points=(point,), iterations=1, threads=1, own=(), peers=(),
            gpu=given,
        )  # fmt: skip
        with collops.init(comm_domain="work") as work, collops.init(comm_domain="meet") as meeting:
            peers = Peers(request, operator, "", rank, work.size)
            place = GpuPlace(given, rank, work.size)
            measured = MeasuredPoint(operator, point, request, work, meeting.barrier, peers, place)
            made = []
            own = measured._variants.own

            def spoiled(key: str) -> Any:
                variant = own(key)
                made.append(variant)
                if rank == 1 and len(made) == 2:
                    zeros = measured._variants.element.matrix(*variant.result.shape)
                    zeros.write(variant.result.read() * 0)
                    variant.steps.append(("spoil", lambda: spoil(place, variant, zeros)))
                return variant

            measured._variants.own = spoiled  # type: ignore[method-assign]
            return measured.run()[-1]["columns"]

    def spoil(place: GpuPlace, variant: Any, zeros: Any) -> None:
        if gpu.cuda.is_capturing(place.stream.__cuda_stream__()[1]) == graph:
            place.stream.copy(variant.result.array.ptr, zeros.array.ptr, zeros.nbytes)

    [rows, _] = run_ranks(measure, 2, threads=True, timeout=patience(100))
    assert {row["column"]: row["wrong_ranks"] for row in rows} == {"plain": 1, "limit": None}


def test_an_event_has_no_time_before_its_stream_has_come_there(gpu: Any) -> None:
    from collops.core import core

    def work(rank: int) -> float:
        driver, stream = Driver(), core().CudaStream(0)
        begin, end = core().CudaEvent(0), core().CudaEvent(0)
        begin.record(stream)
        with driver.held(stream.__cuda_stream__()[1]):
            end.record(stream)
            with pytest.raises(collops.Error, match="cuEventElapsedTime"):
                end.elapsed_ms(begin)
        stream.synchronize()
        return float(end.elapsed_ms(begin))

    assert run_ranks(work, 1)[0] > 0
