"""Rules of HCCL's rank tables, configs and sub-communicators that the simulated one holds to."""

from __future__ import annotations

import copy
import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.launch.rank_table import make_rank_table
from collops.testing import run_ranks
from tests.npu.simulated.simulated_rank import (
    E_INTERNAL,
    E_NOT_FOUND,
    E_NOT_SUPPORT,
    E_PARA,
    E_PTR,
    E_TIMEOUT,
    E_UNAVAIL,
    I32,
    SUM,
    U32,
    U64,
    P,
    Rank,
    type_of,
)

Work = Callable[[Rank, Path], Any]
NOT_SET = 0xFFFFFFFF
MAGIC, VERSION = 0xF0F0F0F0, 10


class Config(ctypes.Structure):
    """HcclCommConfig, as HcclCommConfigInit leaves it."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", U32),
        ("version", U32),
        ("reserved", U64),
        ("buffer_size", U32),
        ("deterministic", U32),
        ("name", ctypes.c_char * 128),
        ("udi", ctypes.c_char * 128),
        ("expansion_mode", U32),
        ("traffic_class", U32),
        ("service_level", U32),
        ("world_rank", U32),
        ("job", U64),
        ("zero_copy", ctypes.c_uint8),
        ("execute_timeout", I32),
        ("algorithm", ctypes.c_char * 1600),
        ("retry_enable", ctypes.c_char * 50),
        ("retry_parameters", ctypes.c_char * 128),
        ("buffer_name", ctypes.c_char * 128),
        ("qos", U32),
        ("window", U64),
    )


def config(**fields: Any) -> Config:
    values = {
        "size": ctypes.sizeof(Config),
        "magic": MAGIC,
        "version": VERSION,
        "buffer_size": NOT_SET,
        "deterministic": NOT_SET,
        "traffic_class": NOT_SET,
        "service_level": NOT_SET,
        "execute_timeout": -1,
        "qos": NOT_SET,
        "window": 16,
    }
    return Config(**(values | fields))


def table(servers: int = 1, devices: int = 2) -> dict[str, Any]:
    """Rank table 1.0 of documentation addresses."""
    server_list = []
    for s in range(servers):
        device = [
            {
                "device_id": str(d),
                "device_ip": f"192.0.2.{10 + s * devices + d}",
                "rank_id": str(s * devices + d),
            }
            for d in range(devices)
        ]
        server_list.append({"server_id": f"node-{s}", "device": device})
    return {
        "version": "1.0",
        "status": "completed",
        "server_count": str(servers),
        "server_list": server_list,
    }


def write(folder: Path, content: Any, name: str = "table.json") -> Path:
    path = folder / name
    whole = path.with_suffix(".new")
    whole.write_text(content if isinstance(content, str) else json.dumps(content))
    whole.rename(path)  # ranks that wait for it never read a part
    return path


def init_table(one: Rank, path: Path, rank: int | None = None, settings: Any = None) -> int:
    """HcclCommInitClusterInfo's answer, or that of its sister with a config."""
    arguments = (str(path).encode(), one.rank if rank is None else rank)
    if settings is None:
        return int(one.hccl.HcclCommInitClusterInfo(*arguments, ctypes.byref(one.comm)))
    call = one.hccl.HcclCommInitClusterInfoConfig
    return int(call(*arguments, ctypes.byref(settings), ctypes.byref(one.comm)))


def split(one: Rank, ranks: Any, number: int, own: int, settings: Any) -> tuple[int, P]:
    """HcclCreateSubCommConfig's answer and its communicator."""
    made = P()
    ids = None if ranks is None else np.array(ranks, np.uint32)
    code = one.hccl.HcclCreateSubCommConfig(
        ctypes.byref(one.comm),
        0 if ids is None else ids.size,
        None if ids is None else P(ids.ctypes.data),
        U64(number),
        own,
        None if settings is None else ctypes.byref(settings),
        ctypes.byref(made),
    )
    return int(code), made


def name_of(one: Rank) -> str:
    text = ctypes.create_string_buffer(128)
    assert one.hccl.HcclGetCommName(one.comm, text) == 0
    return text.value.decode()


def total(one: Rank) -> int:
    """An HcclAllReduce of ones."""
    x = one.device(np.ones(1, np.int32))
    one.run("HcclAllReduce", x, x, 1, type_of(np.int32), SUM)
    return int(x.read()[0])


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


@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_tables_that_collops_makes(by_table: Any, version: str) -> None:
    content = make_rank_table(["here"], 2, version)
    assert by_table(lambda one, _: total(one), 2, content) == [2, 2]


def changed(*changes: tuple[str, Any], of: Any = None) -> Any:
    """A table with other values; None takes a field away."""
    content = table(2, 2) if of is None else of
    for path, value in changes:
        place, *keys = content, *path.split(".")
        for key in keys[:-1]:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if value is None:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
    return content


def pods(**changes: Any) -> Any:
    """Rank table 1.2, with a super pod for each of the two servers."""
    content = table(2, 2) | {"version": "1.2"}
    for server in content["server_list"]:
        for device in server["device"]:
            device["super_device_id"] = device["device_id"]
    content["super_pod_list"] = [
        {"super_pod_id": str(p), "server_list": [{"server_id": f"node-{p}"}]} for p in range(2)
    ]
    return changed(*((path.replace("__", "."), v) for path, v in changes.items()), of=content)


def rank_list(**changes: Any) -> Any:
    """Rank table 2.0 of two ranks on one server."""
    address = {"addr_type": "EID", "addr": "000a", "ports": ["1/0"]}
    level = {"net_layer": 0, "net_instance_id": "here", "rank_addr_list": [address]}
    ranks = [{"rank_id": r, "local_id": r, "device_id": r, "level_list": [level]} for r in range(2)]
    content = {"version": "2.0", "status": "completed", "rank_count": 2, "rank_list": ranks}
    return content | changes


FIRST, SECOND = "server_list.0.device.0", "server_list.1.device.1"
A2, A3, A5, FIRST_910 = "Ascend910B1", "Ascend910_9391", "Ascend950", "Ascend910B"
UNEQUAL = changed(("server_list.1.device", table(2, 2)["server_list"][1]["device"][:1]))
MISTAKES = [
    (A2, changed(("version", "3.0")), E_NOT_SUPPORT, "version 3.0 is not supported"),
    (A2, changed(("version", 1.0)), E_PARA, "EI0017: version is not string"),
    (A2, rank_list(), E_NOT_SUPPORT, "version 2.0 is not supported on Ascend910B1"),
    (A5, table(), E_PARA, "version 1.0 is not supported on Ascend950"),
    (A5, rank_list(rank_count=3), E_PARA, "rank_count is not the length"),
    (A2, changed(("status", None)), E_INTERNAL, "EI0004: invalid ranktable format, or no status"),
    (A2, changed(("status", "initializing")), E_INTERNAL, "was not completed"),
    (A2, changed(("server_count", "3")), E_PARA, "EI0014: server_count is not the length"),
    (A2, changed(("server_count", 2)), E_PARA, "server_count is not string"),
    (A2, changed(("server_list", [])), E_PARA, "the size of server_list is zero"),
    (A2, changed(("server_list", None)), E_NOT_FOUND, "EI0017: there is no server_list"),
    (A2, changed(("server_list.1.server_id", "node-0")), E_PARA, "already exist"),
    (A2, changed(("server_list.1.server_id", "n" * 65)), E_PARA, "too long"),
    (A2, changed(("server_list.0.host_ip", "node")), E_PARA, "host_ip is no address"),
    (A2, changed((f"{FIRST}.device_id", 0)), E_PARA, "device_id is not string"),
    (A2, changed((f"{FIRST}.device_id", "16")), E_PARA, "no number of its range"),
    (FIRST_910, changed((f"{FIRST}.device_id", "8")), E_PARA, "no number of its range"),
    (A2, changed((f"{FIRST}.device_ip", None)), E_PARA, "EI0014: device_ip is not set correctly"),
    (A2, changed((f"{FIRST}.device_ip", "192.0.2.11")), E_PARA, "is already exist"),
    (A2, changed((f"{FIRST}.device_ip", "192.0.2.1,192.0.2.2")), E_PARA, "different numbers of"),
    (A2, changed((f"{FIRST}.device_ip", "fd00::1")), E_PARA, "EI0001"),
    (A2, changed((f"{FIRST}.host_port", "0")), E_PARA, "host_port 0 is no number of its range"),
    (A2, changed((f"{FIRST}.device_port", "65536")), E_PARA, "device_port 65536 is no number"),
    (A2, changed((f"{FIRST}.rank_id", "1")), E_UNAVAIL, "EI0014: rank_id 0 is not in it"),
    (A2, changed((f"{SECOND}.rank_id", "2")), E_PARA, "rank_id is not 0 to n - 1"),
    (A2, changed((f"{FIRST}.rank_id", None)), E_NOT_FOUND, "EI0017: there is no rank_id"),
    (FIRST_910, UNEQUAL, E_PARA, "EI0014: the servers have different numbers of devices"),
    (A3, pods(**{f"{FIRST}.super_device_id": None}), E_PARA, "is invalid or repeated"),
    (A3, pods(**{f"{FIRST}.super_device_id": "1"}), E_PARA, "is invalid or repeated"),
    (A3, pods(super_pod_list__1__super_pod_id="0"), E_PARA, "super_pod_id already exist"),
]
ACCEPTED = [
    (A2, UNEQUAL),
    (A3, UNEQUAL),
    (A2, changed(("server_count", None))),
    (A2, changed((f"{FIRST}.rank_id", "0"), ("server_list.0.host_port", "0"))),
    (A2, changed((f"{FIRST}.device_ip", None), of=table(1, 2))),
    (A2, changed((f"{FIRST}.device_ip", ""), of=table(1, 2))),
    (A3, changed((f"{FIRST}.device_ip", None))),
    (FIRST_910, changed((f"{FIRST}.device_ip", None), ("server_list.0.host_ip", "127.0.0.1"))),
    (A3, pods(super_pod_list=None)),
    (A3, pods(super_pod_list=None, **{f"{FIRST}.super_device_id": None})),
    (A2, pods(**{f"{FIRST}.super_device_id": None})),
    (A5, rank_list()),
]


def test_what_the_loader_takes_and_refuses(by_table: Any) -> None:
    """It takes a table of ranks that do not come where it waits for them."""

    def work(one: Rank, path: Path) -> list[str]:
        def written(content: Any, name: str = "other.json") -> Path:
            return write(path.parent, content, name)

        link, folder = path.parent / "link.json", path.parent / "a.json.d"
        folder.mkdir()
        link.symlink_to(written(table(), "table.txt"))
        calls: list[tuple[str, Callable[[], Path], int, int, str]] = [
            (soc, lambda c=content: written(c), 0, code, text)
            for soc, content, code, text in MISTAKES
        ]
        calls += [
            # Of two equal tables the second would meet where the first still waits.
            (soc, lambda c=content | {"soc": soc}: written(c), 0, E_TIMEOUT, "HCCL_CONNECT_TIMEOUT")
            for soc, content in ACCEPTED
        ]
        calls += [
            (A2, lambda: path.parent / "none.json", 0, E_INTERNAL, "not a valid real path"),
            (A2, lambda: link, 0, E_INTERNAL, "table.txt is not a valid .json file"),
            (A2, lambda: write(folder, table()), 0, E_INTERNAL, "is not a valid .json file"),
            (A2, lambda: written("{"), 0, E_INTERNAL, "invalid ranktable format"),
            (A2, lambda: path, 9, E_PARA, "no such rank"),
            (A2, lambda: path, 1, E_UNAVAIL, "has device 1 for this rank, but the thread's is 0"),
        ]
        wrong = []
        for soc, file, rank, code, text in calls:
            os.environ["COLLOPS_SIM_SOC"] = soc
            found, said = init_table(one, file(), rank), one.text()
            if found != code or text not in said:
                wrong.append(f"{found} {said}, not {code} {text}")
        return wrong

    limits = {"HCCL_CONNECT_TIMEOUT": "0.05", "COLLOPS_SIM_TABLE_S": "0.1"}
    assert by_table(work, 1, table(), connects=False, **limits) == [[]]


def test_device_ids_are_those_of_the_server(by_table: Any) -> None:
    """Device 0 of a process is the first that ASCEND_RT_VISIBLE_DEVICES lists."""
    content = changed(
        (f"{FIRST}.device_id", "5"), ("server_list.0.device.1.device_id", "3"), of=table(1, 2)
    )
    assert (
        by_table(lambda one, _: total(one), 2, content, ASCEND_RT_VISIBLE_DEVICES="5,3") == [2] * 2
    )


def test_one_table_on_a_device_and_any_root_infos(by_table: Any) -> None:
    def work(one: Rank, path: Path) -> list[Any]:
        def by_root() -> int:
            info, other = ctypes.create_string_buffer(4108), ctypes.c_void_p()
            assert one.hccl.HcclGetRootInfo(info) == 0
            code = one.hccl.HcclCommInitRootInfo(1, info, 0, ctypes.byref(other))
            return code or one.hccl.HcclCommDestroy(other)

        codes = [by_root(), init_table(one, path), init_table(one, path, 9)]
        codes.append(init_table(one, write(path.parent, table(2, 2), "another.json")))
        said = one.text()
        missing = init_table(one, path.parent / "none.json")
        assert one.hccl.HcclCommDestroy(one.comm) == 0
        return [
            *codes,
            "multiple initialization" in said,
            missing,
            init_table(one, path),
            by_root(),
        ]

    assert by_table(work, 1) == [[0, *[E_UNAVAIL] * 3, True, E_INTERNAL, 0, 0]]


def test_configs_are_checked(by_table: Any) -> None:
    def work(one: Rank, path: Path) -> list[int]:
        wrong = [
            config(magic=1),
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

    assert by_table(work, 1, connects=False) == [[E_PARA] * 4 + [0, E_PTR]]


@pytest.mark.parametrize(("version", "more"), [(8, -140), (10, 8), (11, 8)])
def test_a_config_of_another_cann_is_taken(by_table: Any, version: int, more: int) -> None:
    def work(one: Rank, path: Path) -> tuple[int, str]:
        size = ctypes.sizeof(Config) + more
        return init_table(
            one, path, settings=config(version=version, size=size, name=b"mine")
        ), name_of(one)

    assert by_table(work, 1, connects=False) == [(0, "mine")]


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
            split(one, None, 7, own, None)[0],
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

    wanted = [*[E_PARA] * 7, E_PTR, *[E_PARA] * 3, 0, E_PARA, E_NOT_SUPPORT]
    assert by_table(work, 2) == [wanted] * 2
