"""Who starts the ranks of a benchmark: itself, a rank table, or `collops run`; and their hosts."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

import collops
from collops.bench import limit as flag
from collops.bench.collectives import CollectivePoint
from collops.bench.hosts import Hosts
from collops.bench.launch import Start, start_of
from collops.bench.limit import Flags
from collops.bench.operator import Request
from collops.bench.operators import load
from collops.bench.options import parse
from collops.bench.ranks import check_same
from collops.cli import main
from collops.launch.rank_table import make_rank_table
from collops.testing import RankErrors, run_ranks
from tests import programs


def test_ranks_of_collops_run_measure_together() -> None:
    words = ["-m", "collops", "run", "-n", "3", "-m", "collops", "bench", "all_gather_v"]
    done = programs.run(
        [sys.executable, *words, "--quick", "--sizes", "1k"],
        capture_output=True,
        env={**os.environ, "COLLOPS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "[0] ### AllGatherV, 3 ranks on 1 host" in done.stdout
    assert [line for line in done.stdout.splitlines() if not line.startswith("[0]")] == []


def test_the_ranks_of_a_table_are_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(["node-a", "node-b"], 2))
    operator = load("all_gather_v")
    options = parse(operator, ["--rank-table", str(table)])
    for name, here in (("node-a", ["0", "1"]), ("node-b", ["2", "3"])):
        monkeypatch.setenv("COLLOPS_SERVER_ID", name)
        start = start_of(operator, options)
        assert [each["COLLOPS_RANK"] for each in start.environments] == here
        assert (start.size, start.shows) == (4, name == "node-a")
    options.launched = 4
    assert {point.ranks for point in operator.points(options)} == {4}
    options.ranks = (2,)
    with pytest.raises(ValueError, match="--ranks 2: 4 ranks are started"):
        operator.points(options)
    done = programs.run_forked(
        main,
        ["bench", "all_gather_v", "--rank-table", str(table), "--mpi", "/opt/mpi"],
        env={"COLLOPS_SERVER_ID": "node-a"},
    )
    assert done.returncode == 2
    assert "--mpi starts ranks itself" in done.stderr


def test_a_rank_of_a_launcher_needs_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    gather, linear = load("all_gather_v"), load("linear_parallel")
    monkeypatch.setenv("COLLOPS_RANK", "1")
    monkeypatch.delenv("COLLOPS_RANK_SIZE", raising=False)
    with pytest.raises(ValueError, match="COLLOPS_RANK_SIZE must be a whole number, got ''"):
        start_of(gather, parse(gather, []))
    monkeypatch.setenv("COLLOPS_RANK_SIZE", "2")
    assert start_of(gather, parse(gather, [])) == Start(2, rank=1)
    assert start_of(linear, parse(linear, [])) == Start()


def request_of(sizes: tuple[int, ...]) -> Request:
    points = tuple(
        CollectivePoint(dtype="f32", size=size, skew="even", counts=(size, size)) for size in sizes
    )
    return Request(
        operator="all_gather_v", points=points, iterations=1, threads=1, own=("plain",), peers=()
    )


def test_hosts_with_other_arguments_are_told_so() -> None:
    def check(rank: int, sizes: list[tuple[int, ...]]) -> str:
        with collops.init() as comm:
            check_same(request_of(sizes[rank]), comm)
            hosts = Hosts.of(comm)
            return f"{hosts.text()} {hosts.one_clock}"

    assert run_ranks(check, 2, [(64, 128), (64, 128)]) == ["2 ranks on 1 host True"] * 2
    with pytest.raises(RankErrors) as failed:
        run_ranks(check, 2, [(64, 128), (64,)])
    for rank in range(2):
        assert "rank 1 was given other arguments than rank 0" in str(failed.value.errors[rank])


def test_hosts_are_named_by_their_ranks() -> None:
    hosts = Hosts((0, 1, 0, 2), one_clock=False)
    assert hosts.text() == "4 ranks on 3 hosts (2 + 1 + 1)"
    assert hosts.ranks(0) == [0, 2]


def flag_us(rank: int, cores: int, opens: str) -> float | None:
    """The way of a word; rank 1 may open no memory of rank 0 if `opens` is empty."""
    if rank == 1 and not opens:
        os.open = refuse  # type: ignore[assignment]
    with collops.init() as comm:
        return Flags(comm, cores).one_way_us()


def refuse(*_: object) -> int:
    raise PermissionError


def test_a_word_is_timed_where_each_rank_has_a_core_and_all_see_the_memory() -> None:
    if len(os.sched_getaffinity(0)) > 1:
        [found, same] = run_ranks(flag_us, 2, 2, "opens")
        assert found is not None
        assert 0 < found == same
    assert run_ranks(flag_us, 2, 1, "opens") == [None, None]


def late_flag_us(rank: int, late_s: float) -> float | str | None:
    """As flag_us of ranks that poll a little, of which rank 1 is late; or the error."""
    flag._POLLS = 1000
    with collops.init() as comm:
        comm.timeout_s = 1.0
        flags = Flags(comm, 2)
        look = flags._look
        flags._look = lambda partner: time.sleep(rank * late_s) or look(partner)  # type: ignore[method-assign]
        try:
            return flags.one_way_us()
        except TimeoutError as error:
            return str(error)
        except collops.Error:
            return "told by another rank"


def test_a_rank_that_is_late_is_waited_for_and_then_named() -> None:
    [found, same] = run_ranks(late_flag_us, 2, 0.02)
    assert isinstance(found, float) and found == same
    [named, _] = run_ranks(late_flag_us, 2, 1.5)
    assert str(named).startswith("rank 1 did not answer rank 0 for 1 s, while the time of a word")
    assert run_ranks(flag_us, 2, 2, "") == [None, None]
