"""How the ranks of a group meet at a store: who is missing, who comes twice, and for how long."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import collops.torch  # noqa: E402
from collops.launch.processes import run_on_threads  # noqa: E402
from collops.testing import run_ranks  # noqa: E402
from collops.torch.meeting import meet  # noqa: E402
from patience import patience  # noqa: E402
from tests.torch.groups import TIMEOUT_S, default_group, free_port, run_group, total  # noqa: E402


def wait_for(holds: Callable[[], bool]) -> None:
    """Returns once something holds."""
    deadline = time.monotonic() + patience(30)
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _place(way: str, folder: Path) -> str:
    """Where ranks meet; not for a HashStore, which one process has."""
    return f"tcp://127.0.0.1:{free_port()}" if way == "tcp" else f"file://{folder}/store"


def _meet(place: str, rank: int, size: int, timeout_s: float) -> str:
    """What a rank hears that meets others at a store."""
    where = {"init_method": place} if place else {"store": dist.HashStore()}
    limit = timedelta(seconds=timeout_s)
    try:
        dist.init_process_group("collops", timeout=limit, rank=rank, world_size=size, **where)
    except collops.Error as error:
        return f"{error.name}: {error.message}"
    heard = f"met {int(total())}"
    dist.destroy_process_group()
    return heard


@pytest.mark.parametrize("way", ["tcp", "file", "hash"])
def test_a_rank_that_is_missing_is_named(way: str, tmp_path: Path) -> None:
    place = "" if way == "hash" else _place(way, tmp_path)
    for text in run_ranks(lambda rank: _meet(place, rank, 4, 2), 2 if place else 1):
        assert text.startswith("ERROR_TIMEOUT: group '0': "), text
        missing = "ranks 2, 3 of 4" if place else "ranks 1, 2, 3 of 4"
        assert f"{missing} did not connect within 2 s" in text


@pytest.mark.parametrize("way", ["tcp", "file"])
def test_a_missing_rank_0_is_named(way: str, tmp_path: Path) -> None:
    [text] = run_ranks(lambda _: _meet(_place(way, tmp_path), 1, 2, 2), 1)
    assert text.startswith("ERROR_TIMEOUT: ") and "rank 0 " in text, text


def test_a_rank_that_is_missing_in_a_new_group_is_named() -> None:
    def work(rank: int) -> str:
        limit = timedelta(seconds=1)
        if rank == 1:
            return ""
        with pytest.raises(collops.RankTimeoutError) as caught:
            dist.new_group([0, 1, 2], timeout=limit)
        return caught.value.message

    for text in run_group(work, 3)[::2]:
        assert "rank 1 of 3 did not connect within 1 s" in text, text


@pytest.mark.parametrize("way", ["tcp", "file"])
def test_a_rank_that_comes_twice_is_named_on_all(way: str, tmp_path: Path) -> None:
    """Rank 2 of 3 never comes, so that the others are still waiting."""
    place = _place(way, tmp_path)
    heard = run_ranks(lambda n: f"{os.getpid()} {_meet(place, min(n, 1), 3, 30)}", 3)
    pids = {text.partition(" ")[0] for text in heard[1:]}
    for text in heard:
        assert "ERROR_RANK_MISMATCH" in text and "rank 1 is claimed twice, by pid" in text, text
        assert set(re.findall(r"by pid (\d+) on", text)) == pids


def test_threads_that_are_one_rank_of_a_store_are_named() -> None:
    """A HashStore is of one process."""
    store, heard = dist.HashStore(), []

    def work(_: int) -> None:
        with pytest.raises(collops.RankMismatchError) as caught:
            meet(store, 1, 3, "one", patience(20))
        heard.append(caught.value.message)

    run_on_threads(range(2), work, patience(30))
    [text] = set(heard)
    assert len(heard) == 2
    assert re.findall(r"by pid (\d+) on", text) == [str(os.getpid())] * 2


def test_ranks_that_are_threads_of_one_process(tmp_path: Path) -> None:
    """Each has a group, as torchft's tests and Ray's threads do; two groups stand side by side."""

    def work(_: int) -> list[list[float]]:
        store, found = dist.HashStore(), {}

        def thread(rank: int) -> None:
            one = collops.torch.Group(meet(store, rank, 3, "one", patience(30)), store, "one")
            other = dist.PrefixStore("other", store)
            two = collops.torch.Group(meet(other, 2 - rank, 3, "two", patience(30)), other, "two")
            x, y = torch.arange(3.0) + 10**rank, torch.tensor([7.0 * rank])
            work = one.allreduce([x])  # asynchronous
            two.broadcast([y], 0).wait()
            work.wait()
            two.shutdown()
            found[rank] = [*x.tolist(), *y.tolist(), two.rank()]
            one.barrier().wait()
            one.shutdown()

        run_on_threads(range(3), thread, patience(60))
        return [found[rank] for rank in range(3)]

    [found] = run_ranks(work, 1)
    assert found == [[111.0, 114.0, 117.0, 14.0, 2 - rank] for rank in range(3)]


def test_threads_beside_other_processes_are_refused(tmp_path: Path) -> None:
    def work(place: int) -> list[str]:
        heard: list[str] = []

        def thread(rank: int) -> None:
            store = dist.FileStore(f"{tmp_path}/store", 3)
            with pytest.raises(collops.UnsupportedError) as caught:
                meet(store, rank, 3, "mixed", patience(30))
            heard.append(caught.value.message)

        run_on_threads([0, 2] if place else [1], thread, patience(60))
        return [f"{os.getpid()}", *heard]

    [_, alone], [pid, *both] = run_ranks(work, 2)
    assert {alone, *both} == {alone}
    assert f"ranks 0, 2 of 3 are threads of one process, pid {pid} on " in alone


def test_a_second_rank_0_is_told_who_has_the_port() -> None:
    place = f"tcp://127.0.0.1:{free_port()}"

    def work(_: int) -> tuple[int, str]:
        return os.getpid(), _meet(place, 0, 2, 1.5)

    (pid, first), (other, second) = sorted(run_ranks(work, 2), key=lambda one: "claimed" in one[1])
    assert "rank 1 of 2 did not connect within 1.5 s" in first
    assert f"rank 0 (pid {other}) cannot open the store at port" in second
    assert f", where pid {pid} listens: if that is rank 0 as well, the rank is claimed" in second


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2)])
def test_another_number_of_ranks_is_named_on_all(sizes: tuple[int, int], tmp_path: Path) -> None:
    place = _place("file", tmp_path)
    heard = run_ranks(lambda rank: f"{os.getpid()} {_meet(place, rank, sizes[rank], 30)}", 2)
    said = [f"{size} on rank {r} (pid {heard[r].split()[0]})" for r, size in enumerate(sizes)]
    for text in heard:
        assert "ERROR_RANK_MISMATCH" in text and "world_size is " in text, text
        assert all(one in text for one in said), (text, said)


def test_a_rank_beyond_the_others_is_refused(tmp_path: Path) -> None:
    [text] = run_ranks(lambda _: _meet(_place("file", tmp_path), 2, 2, 30), 1)
    assert text.endswith("rank must be from 0 to 1, got 2"), text


def test_a_rank_that_comes_once_more_after_the_meeting_is_told(tmp_path: Path) -> None:
    def work(place: int) -> str:
        late, done = tmp_path / "late", tmp_path / "done"
        if place == 2:
            wait_for(late.exists)
            text = _meet(f"file://{tmp_path}/s", 1, 2, 30)
            done.touch()
            return text
        dist.init_process_group(
            "collops", init_method=f"file://{tmp_path}/s", rank=place, world_size=2
        )
        late.touch()
        wait_for(done.exists)
        heard = f"{os.getpid()} met {int(total())}"
        dist.destroy_process_group()
        return heard

    first, second, third = run_ranks(work, 3)
    assert first.endswith("met 3") and second.endswith("met 3")
    assert third.startswith("ERROR_RANK_MISMATCH"), third
    assert f"rank 1 is claimed twice, by pid {second.partition(' ')[0]} on" in third


def test_ranks_meet_again_after_one_was_missing(tmp_path: Path) -> None:
    """On one store: the late rank hears that it was late, and all of them try again."""

    def work(rank: int) -> list[str]:
        store = dist.FileStore(f"{tmp_path}/one", 2)
        heard = []
        for turn in range(2):
            if rank == 1:
                wait_for(functools.partial(store.check, [f"over {turn}"]))
            try:
                limit = timedelta(seconds=patience(20) if turn else 0.5)
                place = {"rank": rank, "world_size": 2, "timeout": limit}
                if turn and rank == 0:
                    store.set("over 1", "")
                dist.init_process_group("collops", store=store, **place)
                heard.append(f"met {int(total())}")
                dist.destroy_process_group()
            except collops.Error as error:
                heard.append(error.message)
                store.set("over 0", "")
        return heard

    missing = "group '0': rank 1 of 2 did not connect within 0.5 s: first contact at the group's"
    for first, second in run_ranks(work, 2):
        assert first.startswith(missing) and second == "met 3", (first, second)


def test_the_variable_holds_unless_the_program_gives_a_time_out() -> None:
    from torch.distributed.constants import default_pg_timeout

    def work(rank: int) -> list[float]:
        limits = [None, timedelta(seconds=1.7), default_pg_timeout]
        groups = [dist.new_group([0], timeout=limit) for limit in limits]
        return [default_group().communicator.timeout_s, *(g.communicator.timeout_s for g in groups)]

    # Torch rounds a time-out to microseconds.
    [limits] = run_group(work, 1, env={"COLLOPS_TIMEOUT_S": "4.1"})
    assert limits == pytest.approx([TIMEOUT_S, 4.1, 1.7, 4.1])
    [limits] = run_group(work, 1)
    assert limits == pytest.approx([TIMEOUT_S, 1800.0, 1.7, 1800.0])
