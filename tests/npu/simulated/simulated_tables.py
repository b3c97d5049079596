"""Rank tables, configs and communicators of the simulated libhccl."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.npu.simulated.simulated_rank import I32, SUM, U32, U64, P, Rank, type_of

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


def table(servers: int = 1, devices: int = 2, hosts: tuple[str, ...] = ()) -> dict[str, Any]:
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
        server = {"server_id": f"node-{s}", "device": device}
        server_list.append(server | ({"host_ip": hosts[s]} if hosts else {}))
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


def name_of(one: Rank, comm: Any = None) -> str:
    text = ctypes.create_string_buffer(128)
    assert one.hccl.HcclGetCommName(comm or one.comm, text) == 0
    return text.value.decode()


def total(one: Rank, comm: Any = None, value: int = 1) -> int:
    """An HcclAllReduce over the communicator."""
    x = one.device(np.array([value], np.int32))
    one.run("HcclAllReduce", x, x, 1, type_of(np.int32), SUM, comm=comm or one.comm)
    return int(x.read()[0])
