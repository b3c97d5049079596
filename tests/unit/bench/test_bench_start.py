"""Who starts the ranks of a benchmark: itself, a rank table, or a launcher; how near they are."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import collops
from collops.bench import limit as flag
from collops.bench.launch import Start, start_of
from collops.bench.limit import Flags
from collops.bench.operators import load
from collops.bench.options import parse
from collops.cli import main
from collops.launch.rank_table import make_rank_table
from collops.testing import run_ranks
from tests import programs


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


def flag_us(rank: int, cores: int, opens: bool = True, late_s: float = 0.0) -> float | str | None:
    """The way of a word between ranks, of which rank 1 is late; or the error.

    Without `opens` rank 1 may open no memory of rank 0.
    """
    if rank == 1 and not opens:
        os.open = refuse  # type: ignore[assignment]
    flag._POLLS = 1000
    with collops.init() as comm:
        comm.timeout_s = 1.0
        flags = Flags(comm, cores)
        look = flags._look
        flags._look = lambda partner: time.sleep(rank * late_s) or look(partner)  # type: ignore[method-assign]
        try:
            return flags.one_way_us()
        except TimeoutError as error:
            return str(error)
        except collops.Error:
            return "told by another rank"


def refuse(*_: object) -> int:
    raise PermissionError


def test_a_word_is_timed_where_each_rank_has_a_core_and_all_see_the_memory() -> None:
    assert run_ranks(flag_us, 2, 1) == [None, None]
    assert run_ranks(flag_us, 2, 2, False) == [None, None]
    for late_s in (0.0, 0.02):
        [found, same] = run_ranks(flag_us, 2, 2, True, late_s)
        assert isinstance(found, float) and 0 < found == same


def test_a_rank_that_is_too_late_is_named() -> None:
    [named, _] = run_ranks(flag_us, 2, 2, True, 1.5)
    assert str(named).startswith("rank 1 did not answer rank 0 for 1 s, while the time of a word")
