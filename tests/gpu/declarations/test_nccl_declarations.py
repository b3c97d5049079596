"""What the library declares of NCCL against nccl.h, by a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison import OPS, Comparison, given_folders

NCCL = Comparison(
    name="nccl",
    headers=("nccl.h", "cuda_runtime.h", "crt/host_config.h"),
    folder="collops/comm/backends/nccl",
    types="library.h",
    api="library.h",
    table="Api",
    load="library.cpp",
)


@pytest.mark.parametrize("first", given_folders("nccl.h") or [None], ids=str)
def test_our_declarations_are_nccls(tmp_path: Path, first: Path | None) -> None:
    """Of the oldest version that is taken, and of a recent one, where both are there."""
    assert NCCL.unnamed(OPS) == set()
    assert NCCL.errors(OPS, tmp_path, first) == ""


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("library.h", "kRemoteError = 6", "kRemoteError = 8"),
        ("library.h", "kInt64 = 4", "kInt64 = 5"),
        ("library.h", "kMax = 2, kMin = 3", "kMax = 3, kMin = 2"),
        ("library.h", "kUniqueIdBytes = 128", "kUniqueIdBytes = 64"),
        ("library.h", "  int32_t traffic_class;\n", ""),
        ("library.h", "  int32_t nvls_ctas;\n", "  const char* nvls_ctas;\n"),
        ("library.h", "kConfigMagic = 0xcafebeef", "kConfigMagic = 0xcafebeee"),
        ("library.h", "kConfigVersion = 22700", "kConfigVersion = 99900"),
        ("library.h", "UniqueId id, int rank, Config", "UniqueId* id, int rank, Config"),
        (
            "library.h",
            "DataType type, Reduction op,\n                       Comm",
            "Reduction op, DataType type,\n                       Comm",
        ),
        ("library.h", "DataType type, int root,", "DataType type,"),
        ("library.h", "(*comm_abort)(Comm comm)", "(*comm_abort)(Comm* comm)"),
        ("library.cpp", '"ncclBroadcast"', '"ncclReduce"'),
    ],
)
def test_a_wrong_declaration_is_found(tmp_path: Path, file: str, right: str, wrong: str) -> None:
    said = NCCL.errors(NCCL.changed(tmp_path / "ops", file, right, wrong), tmp_path)
    assert "static assertion failed" in said or "static_assert" in said


@pytest.mark.parametrize(
    ("file", "right", "wrong", "name"),
    [
        ("library.h", "kInProgress = 7,", "kInProgress = 7, kNew = 9,", "Result::kNew"),
        ("library.h", "(*comm_abort)(Comm comm)", "(*comm_end)(Comm comm)", "comm_end"),
    ],
)
def test_what_nothing_compares_is_found(
    tmp_path: Path, file: str, right: str, wrong: str, name: str
) -> None:
    assert name in NCCL.unnamed(NCCL.changed(tmp_path / "ops", file, right, wrong))
