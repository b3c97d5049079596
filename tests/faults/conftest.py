"""Finds files and sockets that killed ranks have left behind."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def socket_name(job: str) -> str:
    """The abstract socket of the job's first contact (control/first_contact/local_member.cpp)."""
    key = f"{os.geteuid()}\0job/{job}\0shm\0".encode()
    return "@collops-" + hashlib.sha256(key).hexdigest()[:32]


def find_left_behind(job: str) -> list[str]:
    """The files of shared memory and the sockets with the job's name."""
    files = [path.name for path in Path("/dev/shm").iterdir() if "collops" in path.name]
    sockets = Path("/proc/net/unix").read_text().split()
    return files + [word for word in sockets if word == socket_name(job)]


@pytest.fixture
def left_behind() -> Callable[[str], list[str]]:
    """Finds files and sockets of the job of that name."""
    return find_left_behind
