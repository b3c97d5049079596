"""COLLOPS_TRACE=FILE.json: what the ranks write, joined, says what has happened."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops import trace
from collops.cli import main
from collops.testing import RankErrors, run_ranks
from collops.trace.merge import MergedTrace, group_calls, merge, rank_of
from patience import patience

LATE_S = patience(0.3)
# Far less than the sleep, and far more than a rank needs to begin a call on a busy machine.
SURELY_US = 30_000


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("t.rank*.json"))


def traced(folder: Path) -> dict[str, str]:
    return {"COLLOPS_TRACE": str(folder / "t.json")}


def check_format(path: Path) -> list[dict[str, Any]]:
    """The events of a whole file, each of which is as the trace viewers want it."""
    events: list[dict[str, Any]] = json.loads(path.read_text())
    for event in events:
        assert event["ph"] in "XMi", event
        assert event["pid"] >= 1, "viewers take process 0 for the idle task"
        assert isinstance(event["name"], str)
        assert isinstance(event["args"], dict)
        if event["ph"] != "M":
            assert event["tid"] >= 1
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
    return events


def check_nesting(found: MergedTrace) -> None:
    """In a row, a slice lies inside another one or beside it, never across its end."""
    rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in found.events:
        rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in rows.values():
        open_until: list[float] = []
        for begin, end in slices:
            while open_until and open_until[-1] <= begin + 0.002:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.002
            open_until.append(end)


def several_calls(rank: int) -> None:
    comm = collops.init(comm_domain="tp0")
    for step in range(3):
        if rank == 1 and step == 1:
            time.sleep(LATE_S)
        comm.all_gatherv(np.zeros(100 * (rank + 1), np.float32), [100, 200, 300])
    comm.start("all_reduce", np.zeros(70_001, np.float32)).wait()
    pair = comm.split(rank % 2)
    assert pair is not None
    pair.barrier()


def test_a_late_rank_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_ranks(several_calls, 3, env=traced(tmp_path))
    files = files_in(tmp_path)
    assert [path.name for path in files] == [f"t.rank{rank}.json" for rank in range(3)]
    for path in files:
        check_format(path)
    found = merge(files)
    check_nesting(found)
    calls = {(call.comm, call.seq): call for call in group_calls(found.events)}
    late = calls["tp0", 2]
    assert (late.name, late.last, len(late.entered)) == ("all_gatherv", 1, 3)
    assert late.late_us > SURELY_US
    for rank in (0, 2):
        waited = sum(
            event["dur"]
            for event in found.events
            if event["cat"] == "wait"
            and rank_of(event) == rank
            and event["args"].get("awaited") == 1
            and event["ts"] + event["dur"] >= late.entered[1]
            and event["ts"] <= late.entered[1]
        )
        assert waited > SURELY_US, f"rank {rank} waited for rank 1"
    merged = tmp_path / "merged.json"
    assert main(["trace", "merge", *map(str, files), "-o", str(merged)]) == 0
    assert main(["trace", "summary", "--top", "1", str(merged)]) == 0
    said = capsys.readouterr().out
    assert main(["trace", "summary", "--top", "1", *map(str, files)]) == 0
    assert capsys.readouterr().out == said
    row = said.splitlines()[4].split()
    assert row[:4] == ["all_gatherv", "tp0", "2", "1"]


def test_every_kind_of_call_is_there(tmp_path: Path) -> None:
    run_ranks(several_calls, 3, env=traced(tmp_path))
    found = merge(files_in(tmp_path))
    names = {event["name"] for event in found.events if event["cat"] == "call"}
    assert names >= {"first contact", "all_gatherv", "all_reduce", "wait", "split", "barrier"}
    [gathered] = [
        event["args"]
        for event in found.events
        if event["name"] == "all_gatherv" and rank_of(event) == 2 and event["args"]["seq"] == 1
    ]
    assert gathered["sent_bytes"] == 1200
    assert gathered["received_bytes"] == 2400
    assert (gathered["dtype"], gathered["ranks"], gathered["call"]) == ("float32", 3, 1)


def messages(rank: int) -> None:
    comm = collops.init(comm_domain="pairs")
    if rank == 0:
        time.sleep(LATE_S)
        comm.send(np.ones(5), 1)
    else:
        comm.recv(np.empty(5), 0)
    comm.barrier()


def test_messages_do_not_shift_the_numbers_of_group_calls(tmp_path: Path) -> None:
    run_ranks(messages, 2, env=traced(tmp_path))
    found = merge(files_in(tmp_path))
    [barrier] = group_calls(found.events)
    assert (barrier.name, barrier.seq, barrier.entered.keys()) == ("barrier", 1, {0, 1})
    waits = [e["dur"] for e in found.events if e["name"] == "wait for messages"]
    assert max(waits) > SURELY_US


def failing(rank: int) -> str:
    comm = collops.init(comm_domain="fails")
    with pytest.raises(collops.RankMismatchError):
        comm.all_gatherv(np.zeros(1, np.float32 if rank == 0 else np.float64), [1, 1])
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def test_a_failed_call_is_on_the_disk_before_its_rank_is_killed(tmp_path: Path) -> None:
    with pytest.raises(RankErrors):
        run_ranks(failing, 2, env=traced(tmp_path))
    found = merge(files_in(tmp_path))
    failed = [event["args"].get("error") for event in found.events if event["cat"] == "call"]
    assert failed.count("ERROR_RANK_MISMATCH") == 2


# What rank 1 writes while it waits in the call; its barrier may have such a note, too.
IDLE = '"name":"all_gatherv","cat":"idle"'


def killed_in_a_wait(rank: int, folder: str) -> None:
    comm = collops.init(comm_domain="waits")
    comm.barrier()
    if rank == 0:
        deadline = time.monotonic() + patience(20)
        path = Path(folder) / "t.rank1.json"
        while IDLE not in path.read_text() and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(collops.PeerLostError):
        comm.all_gatherv(np.zeros(1, np.float32), [1, 1])


def test_a_call_that_waits_is_on_the_disk(tmp_path: Path) -> None:
    with pytest.raises(RankErrors):
        run_ranks(killed_in_a_wait, 2, str(tmp_path), env=traced(tmp_path))
    text = (tmp_path / "t.rank1.json").read_text()
    whole = merge(files_in(tmp_path))
    # Rank 0 may have been killed with a note of its barrier on the disk, and not its end.
    ended = [event for event in whole.events if rank_of(event) == 1]
    assert not any(event["args"].get("unfinished") for event in ended)
    # As if rank 1 had been killed in its sleep: what followed the note is not there.
    cut = text.index(IDLE)
    (tmp_path / "t.rank1.json").write_text(text[: text.index("\n", cut)] + '\n{"name":"al')
    found = merge(files_in(tmp_path))
    [unfinished] = [
        event for event in found.events if event["args"].get("unfinished") and rank_of(event) == 1
    ]
    assert unfinished["name"] == "all_gatherv"
    assert unfinished["args"]["seq"] == 2


def threads(rank: int) -> None:
    comm = collops.init(comm_domain="threads")
    for _ in range(5):
        comm.all_reduce(np.ones(50_000, np.float32))
    half = comm.split(rank // 2)
    assert half is not None
    half.barrier()


def test_ranks_that_are_threads_have_a_file_each(tmp_path: Path) -> None:
    run_ranks(threads, 4, env=traced(tmp_path), threads=True)
    files = files_in(tmp_path)
    assert [path.name for path in files] == [f"t.rank{rank}.json" for rank in range(4)]
    found = merge(files)
    check_nesting(found)
    reduced = [call for call in group_calls(found.events) if call.name == "all_reduce"]
    assert [len(call.entered) for call in reduced] == [4] * 5
    halves = [call for call in group_calls(found.events) if call.name == "barrier"]
    assert sorted(sorted(call.entered) for call in halves) == [[0, 1], [2, 3]]


def forks(rank: int) -> None:
    comm = collops.init(comm_domain="forks")
    comm.barrier()
    child = os.fork()
    if child == 0:
        own = collops.init(0, 1, comm_domain="child")
        own.barrier()
        own.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    comm.barrier()


def test_a_child_of_fork_leaves_its_parents_file_alone(tmp_path: Path) -> None:
    run_ranks(forks, 2, env=traced(tmp_path))
    names = [path.name for path in files_in(tmp_path)]
    own = [name for name in names if ".pid" not in name]
    assert own == ["t.rank0.json", "t.rank1.json"]
    assert len(names) == 4
    found = merge([tmp_path / name for name in own])
    assert [len(call.entered) for call in group_calls(found.events)] == [2, 2]
    assert {event["args"]["comm"] for event in found.events} == {"forks"}


def test_nothing_is_written_without_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_ranks(threads, 2)
    assert list(tmp_path.iterdir()) == []


def started_and_stopped(rank: int, folder: str) -> None:
    comm = collops.init(comm_domain="some")
    comm.barrier()
    with trace.record(f"{folder}/t.json"):
        comm.all_reduce(np.ones(3, np.float32))
        with pytest.raises(collops.ArgumentError, match="^trace.start: .* records to .* already"):
            trace.start(f"{folder}/other.json")
    comm.barrier()


def test_a_part_of_a_program_is_recorded(tmp_path: Path) -> None:
    run_ranks(started_and_stopped, 2, str(tmp_path))
    found = merge(files_in(tmp_path))
    [call] = group_calls(found.events)
    assert (call.name, call.seq) == ("all_reduce", 2)


def warnings_of(rank: int) -> list[str]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
    logging.getLogger("collops").addHandler(handler)
    comm = collops.init(comm_domain="vain")
    comm.barrier()
    comm.barrier()
    return lines


def test_a_trace_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    [lines] = run_ranks(warnings_of, 1, env=traced(tmp_path / "no"))
    where = f"{tmp_path}/no/t.rank0.json: No such file or directory"
    assert lines == [f"WARNING collops: warning: no trace is written: cannot open {where}"]
