"""torch.distributed beside `collops bench --backend`: its columns, and why there are none.

No torch with CUDA is here: its calls are made on gloo, and its events are stand-ins.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collops.bench.operator import OnGpu, Request
from collops.bench.operators import load
from collops.bench.options import parse
from collops.bench.peers import torch_gpu as torch_baselines
from collops.bench.peers.torch_gpu import TorchBaselines, run_ranks
from collops.testing import run_ranks as on_ranks
from patience import patience

PRINTS = "import json, os, sys; call = json.loads(sys.argv[1]); rank = int(os.environ['RANK'])\n"


def program(text: str) -> list[str]:
    return [sys.executable, "-c", PRINTS + text]


def test_every_rank_tells_its_times() -> None:
    text = "print('noise'); print(json.dumps({'ms': [rank + 0.5, call['rounds']]}))"
    found = run_ranks({"rounds": 3}, 3, program(text), 60)
    assert found == [{"ms": [0.5, 3]}, {"ms": [1.5, 3]}, {"ms": [2.5, 3]}]


def test_a_rank_that_fails_or_hangs_is_a_reason() -> None:
    assert run_ranks({}, 1, program("raise ValueError('broken')"), 60) == [
        {"reason": "torch failed: ValueError: broken"}
    ]
    begin = time.monotonic()
    found = run_ranks({}, 2, program("import time; time.sleep(300)"), 1)
    assert {told["reason"] for told in found} == {"torch did not end within 1 s"}
    assert time.monotonic() - begin < patience(60)


TIMES = ({"ms": [1.0, 4.0, 2.0]}, {"ms": [3.0, 2.0, 1.0]})


def baselines(
    monkeypatch: pytest.MonkeyPatch, name: str, *words: str, told: Any = TIMES
) -> tuple[Any, list[Any]]:
    """The baselines of an operator's points, and the calls that torch was asked for."""
    asked: list[Any] = []

    def ran(call: Any, ranks: int) -> list[Any]:
        asked.append((call, ranks))
        return [*told]

    monkeypatch.setattr(torch_baselines, "run_ranks", ran)
    monkeypatch.setattr(torch_baselines.importlib.metadata, "version", lambda _: "2.13.0+cu130")
    operator = load(name)
    options = parse(operator, ["--backend", "cuda", *words])
    options.launched = 0
    request = Request(
        operator=name, points=tuple(operator.points(options)), iterations=3, threads=1, own=(),
        peers=options.peers, gpu=OnGpu(backend="cuda", devices=(0,), calls=20, graph=False),
    )  # fmt: skip
    return TorchBaselines(request), asked


def record() -> dict[str, Any]:
    plain = {"column": "plain", "ms": 2.0, "gflops": 8.0, "moved_bytes": 64}
    return {"record": "point", "columns": [plain]}


def test_a_column_has_the_slowest_ranks_times(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--sizes", "64", "--skew", "3:1", "--dtype", "bf16"]
    found, asked = baselines(monkeypatch, "all_gather_v", *words)
    point = record()
    assert found.add(point) == []
    assert [row["column"] for row in point["columns"]] == ["plain", "torch_nccl", "torch_symm"]
    row = point["columns"][1]
    assert (row["ms"], row["ms_min"], row["gflops"]) == (3.0, 2.0, round(16 / 3, 2))
    assert (row["interleaved"], row["wrong_ranks"], row["moved_bytes"]) == (False, None, 64)
    call, ranks = asked[0]
    assert (call["counts"], call["dtype"], call["way"], ranks) == (
        (24, 8), "bfloat16", "torch_nccl", 2
    )  # fmt: skip


def test_products_name_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--type", "1,2,4", "--shapes", "8,4,2", "--dtype", "f16"]
    found, asked = baselines(monkeypatch, "linear_parallel", *words)
    assert [(call["type"], tuple(call["rows"]), call["shape"]) for call, _ in asked[::2]] == [
        (1, (3, 5), [8, 4, 2]),
        (2, (3, 5), [8, 4, 2]),
    ]
    assert len(found.add(record())) == len(found.add(record())) == 0
    [note, _] = found.add(record())
    assert note["text"] == "no column torch_nccl: torch has no such call"


def test_a_way_that_was_refused_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [{"reason": "2.30 is needed"}] * 2
    found, asked = baselines(monkeypatch, "all_gather_v", "--sizes", "64,128", told=told)
    assert [call["way"] for call, _ in asked] == ["torch_nccl", "torch_symm"]
    assert [len(found.add(record())) for _ in range(2)] == [2, 0]


def test_a_torch_without_cuda_is_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = baselines(monkeypatch, "all_reduce", "--sizes", "64")
    assert [note["text"] for note in found.add(record())] == [
        f"no column {way}: torch has no such call" for way in ("torch_nccl", "torch_symm")
    ]
    monkeypatch.setattr(torch_baselines.importlib.metadata, "version", lambda _: "2.13.0+cpu")
    assert "is built without CUDA" in torch_baselines._missing()
    assert asked == []


def baseline() -> Any:
    pytest.importorskip("torch")
    from collops.bench.torch import gpu_baseline

    return gpu_baseline


@pytest.mark.parametrize(
    ("way", "bench", "rows", "nccl", "devices", "said"),
    [
        ("torch_nccl", "all_gather_v", None, (2, 29, 3), [0], "NCCL 2.29.3 refuses ranks on one"),
        ("torch_nccl", "all_gather_v", None, (2, 30, 3), [0], ""),
        ("torch_nccl", "all_gather_v", None, (2, 29, 3), [0, 1], ""),
        ("torch_symm", "all_gather_v", None, (2, 30, 3), [0], "no such collective"),
        ("torch_symm", "linear_parallel", [3, 5], (2, 30, 3), [0], "equal rows alone"),
        ("torch_symm", "linear_parallel", [4, 4], (2, 30, 3), [0], ""),
    ],
)
def test_why_torch_cannot(
    monkeypatch: pytest.MonkeyPatch, way: str, bench: str, rows: Any, nccl: Any, devices: Any,
    said: str,
) -> None:  # fmt: skip
    module = baseline()
    call = {"way": way, "bench": bench, "rows": rows, "devices": devices}
    assert "finds no GPU" in module.reason(call, 2)
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module.torch.cuda.nccl, "version", lambda: nccl)
    told = module.reason(call, 2)
    assert said in told
    assert bool(said) == bool(told)


def test_the_calls_run_on_gloo_and_events_are_read(tmp_path: Path) -> None:
    module = baseline()

    def work(rank: int) -> list[Any]:
        torch, dist = module.torch, module.dist
        events: list[float] = []

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.when = time.perf_counter()

            def elapsed_time(self, end: Any) -> float:
                events.append((end.when - self.when) * 1e3)
                return events[-1]

        torch.cuda.Event, torch.cuda.synchronize = Event, lambda device: None
        store = dist.FileStore(os.environ["STORE"], 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        common = {"dtype": "float32", "way": "torch_nccl", "counts": [8, 8]}
        common |= {"rows": [3, 3], "shape": [6, 4, 2]}
        calls = [("all_gather_v", 0), ("reduce_scatter_v", 0)]
        calls += [("linear_parallel", 1), ("linear_parallel", 2)]
        times = []
        for bench, kind in calls:
            call = {**common, "bench": bench, "type": kind}
            run = module.prepare(call, rank, 2, torch.device("cpu"))
            times.append(module.timed(run, 2, 3, torch.device("cpu")))
        dist.destroy_process_group()
        assert len(events) == 8
        return times

    found = on_ranks(work, 2, env={"STORE": f"{tmp_path}/store"}, timeout=patience(100))
    assert [[len(times) for times in rank] for rank in found] == [[2] * 4] * 2
