"""core().resolve_backend() returns the backend that runs in place of another."""

from __future__ import annotations

import pytest

from collops.core import core


@pytest.mark.parametrize(
    ("name", "replacement", "engine"),
    [
        ("hccl", "", "hccl"),
        ("lccl", "", "hccl"),
        ("mc2", "shm", "shm"),
        ("lcoc", "hccl=shm", "shm"),
        ("lccl", "lccl=ucx,hccl=shm", "ucx"),
        ("nccl", "hccl=shm", "nccl"),
    ],
)
def test_the_environment_and_atbs_own_kernels_are_followed(
    name: str, replacement: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLOPS_BACKEND", replacement)
    assert core().resolve_backend("AllGather", name) == engine
    assert {name, engine} <= set(core().backend_names())
