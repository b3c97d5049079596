"""Rank tables, configs and sub-communicators of the simulated libhccl."""

from __future__ import annotations

import copy
import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collops.testing import run_ranks
from tests.npu.simulated.simulated_rank import (
    E_NOT_SUPPORT,
    E_PARA,
    E_PTR,
    E_TIMEOUT,
    E_UNAVAIL,
    Rank,
)
from tests.npu.simulated.simulated_tables import (
    Config,
    config,
    init_table,
    name_of,
    split,
    table,
    total,
    write,
)

Work = Callable[[Rank, Path], Any]


@pytest.fixture
def by_table(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a function on each rank; the ranks have met by a table, unless `connects` is false."""

    def run(work: Work, ranks: int, content: Any = None, connects: bool = True, **env: str) -> Any:
        path = write(tmp_path, table(1, ranks) if content is None else content)

        def one(rank: int) -> Any:
            made = Rank(rank, ranks)
            made.folder = tmp_path
            if connects:
                assert init_table(made, path) == 0, made.text()
            return work(made, path)

        return run_ranks(one, ranks, env=env)

    return run


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_ranks_meet_by_a_table(by_table: Any, ranks: int) -> None:
    def work(one: Rank, path: Path) -> tuple[int, str]:
        return total(one, value=10**one.rank), name_of(one)

    assert by_table(work, ranks) == [(int("1" * ranks), "hccl_world_group")] * ranks


def test_a_table_that_is_being_written_is_read_again(by_table: Any) -> None:
    content = table()

    def work(one: Rank, path: Path) -> int:
        def complete() -> None:
            time.sleep(0.3)
            write(path.parent, content)

        if one.rank == 0:
            threading.Thread(target=complete).start()
        assert init_table(one, path) == 0
        return total(one)

    assert by_table(work, 2, content | {"status": "initializing"}, connects=False) == [2, 2]


def test_a_table_of_version_1_2(by_table: Any) -> None:
    content = table(2, 1) | {"version": "1.2"}
    for server in content["server_list"]:
        server["device"][0] |= {"super_device_id": "0", "device_id": server["server_id"][-1]}
    pods = [{"server_id": server["server_id"]} for server in content["server_list"]]
    content["super_pod_list"] = [{"super_pod_id": "0", "server_list": pods}]
    assert by_table(lambda one, _: total(one), 2, content) == [2, 2]


def changed(path: str, value: Any) -> Any:
    """A table with another value; None takes the field away."""
    content: Any = table(2, 2)
    place, *keys = content, *path.split(".")
    for key in keys[:-1]:
        place = place[int(key)] if key.isdigit() else place[key]
    if value is None:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return content


FIRST = "server_list.0.device.0"
MISTAKES = [
    ("version", "3.0", E_NOT_SUPPORT, "version 3.0 is not supported"),
    ("version", 1.0, E_PARA, "version is not string"),
    ("status", "broken", E_PARA, "status broken"),
    ("status", "initializing", E_TIMEOUT, "was not completed"),
    ("server_count", "3", E_PARA, "server_count is not the length"),
    ("server_count", 2, E_PARA, "server_count is not string"),
    ("server_list", [], E_PARA, "there is no list server_list"),
    ("server_list.1.server_id", "node-0", E_PARA, "already exist"),
    ("server_list.1.server_id", "n" * 65, E_PARA, "too long"),
    ("server_list.0.host_ip", "node", E_PARA, "host_ip is no address"),
    (f"{FIRST}.device_id", 0, E_PARA, "device_id is not string"),
    (f"{FIRST}.device_id", "8", E_PARA, "no number of its range"),
    (f"{FIRST}.device_ip", None, E_PARA, "there is no device_ip"),
    (f"{FIRST}.device_ip", "192.0.2.11", E_PARA, "already exist"),
    (f"{FIRST}.rank_id", "1", E_PARA, "rank_id is not 0 to n - 1"),
    (f"{FIRST}.rank_id", None, E_PARA, "there is no rank_id"),
]


@pytest.mark.parametrize(("path", "value", "code", "text"), MISTAKES)
def test_a_mistake_in_a_table(by_table: Any, path: str, value: Any, code: int, text: str) -> None:
    def work(one: Rank, file: Path) -> tuple[int, str]:
        return init_table(one, file), one.text()

    env = {"HCCL_CONNECT_TIMEOUT": "1"}
    [(found, words)] = by_table(work, 1, changed(path, value), connects=False, **env)
    assert (found, text in words) == (code, True), words


def test_other_mistakes_with_tables(by_table: Any) -> None:
    alternating = table(2, 2)
    first, second = (server["device"] for server in alternating["server_list"])
    first[1]["rank_id"], second[0]["rank_id"] = "2", "1"

    def work(one: Rank, path: Path) -> list[tuple[int, str]]:
        folder = path.parent
        calls = [
            (folder / "none.json", 0),
            (write(folder, table(), "table.txt"), 0),
            (write(folder, "{", "half.json"), 0),
            (write(folder, alternating, "alternating.json"), 0),
            (path, 9),
            (path, 1),
        ]
        return [(init_table(one, *call), one.text()) for call in calls]

    [found] = by_table(work, 1, table(), connects=False)
    wanted = [
        (E_PARA, "not a valid real path"),
        (E_PARA, "not a valid real path"),
        (E_PARA, "invalid ranktable format"),
        (E_PARA, "the ranks of two servers alternate"),
        (E_PARA, "no such rank"),
        (E_UNAVAIL, "has device 1 for this rank, but the thread's is 0"),
    ]
    for (code, text), (want, words) in zip(found, wanted, strict=True):
        assert (code, words in text) == (want, True), text


def test_tables_and_root_infos_do_not_mix(by_table: Any) -> None:
    def work(one: Rank, path: Path) -> list[int]:
        info, other = ctypes.create_string_buffer(4108), ctypes.c_void_p()
        assert one.hccl.HcclGetRootInfo(info) == 0
        mixed = one.hccl.HcclCommInitRootInfo(1, info, 0, ctypes.byref(other))
        again = init_table(one, path)
        assert one.hccl.HcclCommDestroy(one.comm) == 0
        return [mixed, again, one.hccl.HcclCommInitRootInfo(1, info, 0, ctypes.byref(other))]

    assert by_table(work, 1) == [[E_PARA, E_PARA, 0]]


def test_configs_are_checked(by_table: Any) -> None:
    def work(one: Rank, path: Path) -> list[int]:
        wrong = [
            config(magic=1),
            config(version=0),
            config(version=11),
            config(size=ctypes.sizeof(Config) - 8),
            config(buffer_size=0),
            config(deterministic=3),
            Config(),
        ]
        codes = [init_table(one, path, settings=settings) for settings in wrong]
        settings = config(buffer_size=50, deterministic=1, name=b"mine")
        codes.append(init_table(one, path, settings=settings))
        assert name_of(one) == "mine"
        none = one.hccl.HcclCommInitClusterInfoConfig(
            str(path).encode(), 0, None, ctypes.byref(ctypes.c_void_p())
        )
        return [*codes, none]

    assert by_table(work, 1, connects=False) == [[E_PARA] * 7 + [0, E_PTR]]


@pytest.mark.parametrize("ranks", [3, 5, 8])
def test_sub_communicators(by_table: Any, ranks: int) -> None:
    def work(one: Rank, path: Path) -> tuple[int, int, int, str]:
        mine = list(range(one.rank % 2, ranks, 2))
        code, comm = split(one, mine, one.rank % 2, mine.index(one.rank), config())
        assert code == 0, one.text()
        size = ctypes.c_uint32()
        assert one.hccl.HcclGetRankSize(comm, ctypes.byref(size)) == 0
        found = total(one, comm, one.rank), size.value, total(one), name_of(one, comm)
        assert one.hccl.HcclCommDestroy(comm) == 0
        return found

    def want(rank: int) -> tuple[int, int, int, str]:
        mine = range(rank % 2, ranks, 2)
        return sum(mine), len(mine), ranks, f"hccl_world_group_sub_{rank % 2}"

    assert by_table(work, ranks) == [want(rank) for rank in range(ranks)]


def test_a_rank_may_take_no_part(by_table: Any) -> None:
    def work(one: Rank, path: Path) -> Any:
        if one.rank == 1:
            wrong = split(one, None, 7, 0, None)[0]
            code, comm = split(one, None, 0xFFFFFFFF, 0, None)
            return wrong, code, comm.value
        code, comm = split(one, [0, 2], 7, one.rank // 2, config(name=b"outer"))
        return code, name_of(one, comm), total(one, comm)

    assert by_table(work, 3) == [(0, "outer", 2), (E_PARA, 0, None), (0, "outer", 2)]


def test_mistakes_in_splitting(by_table: Any) -> None:
    def work(one: Rank, path: Path) -> list[int]:
        both, own = [0, 1], one.rank
        codes = [
            split(one, [], 1, own, config())[0],
            split(one, [0, 1, 2], 1, own, config())[0],
            split(one, [1, 0], 1, 1 - own, config())[0],
            split(one, [0, 2], 1, own, config())[0],
            split(one, both, 1, 1 - own, config())[0],
            split(one, both, 1, 2, config())[0],
            split(one, both, 1, own, None)[0],
            split(one, both, 1, own, config(magic=0))[0],
            split(one, both, 2 + own, own, config())[0],
            split(one, both, 1, own, config(buffer_size=100 + own))[0],
        ]
        code, comm = split(one, both, 1, own, config())
        repeated = split(one, both, 1, own, config())[0]
        parent = copy.copy(one)
        parent.comm = comm
        nested = split(parent, both, 5, own, config())[0]
        return [*codes, code, repeated, nested]

    wanted = [*[E_PARA] * 6, E_PTR, *[E_PARA] * 3, 0, E_PARA, E_NOT_SUPPORT]
    assert by_table(work, 2) == [wanted] * 2


def test_a_member_that_does_not_come_is_a_time_out(by_table: Any) -> None:
    def work(one: Rank, path: Path) -> int:
        code = 0 if one.rank else split(one, [0, 1], 1, 0, config())[0]
        one.meet("ended")
        return code

    assert by_table(work, 2, HCCL_CONNECT_TIMEOUT="2") == [E_TIMEOUT, 0]
