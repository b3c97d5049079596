"""What the library declares of CUDA's driver against cuda.h, by a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison import OPS, Comparison

DRIVER = Comparison(
    name="driver",
    headers=("cuda.h",),
    folder="collops/kernels/cuda",
    types="driver.h",
    api="driver.h",
    table="DriverApi",
    load="driver.cpp",
)


def test_our_declarations_are_cudas(tmp_path: Path) -> None:
    assert DRIVER.unnamed(OPS) == set()
    assert DRIVER.errors(OPS, tmp_path) == ""


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("driver.h", "kNotReady = 600", "kNotReady = 601"),
        ("driver.h", "  void* win32_metadata;\n", ""),
        ("driver.h", "using DevicePointer = uint64_t;", "using DevicePointer = uint32_t;"),
        ("driver.h", "char reserved[64];", "char reserved[32];"),
        ("driver.h", "(*mem_alloc)(DevicePointer* pointer,", "(*mem_alloc)(DevicePointer pointer,"),
        (
            "driver.h",
            "(*event_query)(Event event)",
            "(*event_query)(Event event, unsigned int flags)",
        ),
        ("driver.h", "unsigned int block_z, unsigned int shared", "unsigned int shared"),
        ("driver.cpp", '"cuStreamDestroy_v2"', '"cuStreamWaitEvent"'),
    ],
)
def test_a_wrong_declaration_is_found(tmp_path: Path, file: str, right: str, wrong: str) -> None:
    said = DRIVER.errors(DRIVER.changed(tmp_path / "ops", file, right, wrong), tmp_path)
    assert "static assertion failed" in said or "static_assert" in said


@pytest.mark.parametrize(
    ("file", "right", "wrong", "name"),
    [
        ("driver.h", "kNotReady = 600,", "kNotReady = 600, kNew = 9,", "Result::kNew"),
        ("driver.h", "(*event_query)(Event event)", "(*event_ask)(Event event)", "event_ask"),
    ],
)
def test_what_nothing_compares_is_found(
    tmp_path: Path, file: str, right: str, wrong: str, name: str
) -> None:
    assert name in DRIVER.unnamed(DRIVER.changed(tmp_path / "ops", file, right, wrong))
