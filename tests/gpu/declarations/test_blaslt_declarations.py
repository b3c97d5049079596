"""What the library declares of cuBLASLt against cublasLt.h, by a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from comparison import OPS, Comparison

BLASLT = Comparison(
    name="blaslt",
    headers=("cublasLt.h", "cuda_runtime.h", "crt/host_config.h"),
    folder="collops/kernels/cuda",
    types="blaslt.h",
    api="blaslt.h",
    table="BlasApi",
    load="blaslt.cpp",
)


def test_our_declarations_are_cublaslts(tmp_path: Path) -> None:
    assert BLASLT.unnamed(OPS) == set()
    assert BLASLT.errors(OPS, tmp_path) == ""


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("blaslt.h", "kArchMismatch = 8", "kArchMismatch = 9"),
        ("blaslt.h", "kBFloat16 = 14", "kBFloat16 = 15"),
        ("blaslt.h", "enum class BlasCompute : int32_t", "enum class BlasCompute : int64_t"),
        ("blaslt.h", "kMinAlignmentD = 8", "kMinAlignmentD = 9"),
        ("blaslt.h", "kReduceInComputeType = 2", "kReduceInComputeType = 1"),
        ("blaslt.h", "kMultiprocessors = 15", "kMultiprocessors = 14"),
        ("blaslt.h", "kClusterShape = 8", "kClusterShape = 7"),
        ("blaslt.h", "kTwoByOne = 3", "kTwoByOne = 4"),
        ("blaslt.h", "uint64_t data[8];", "uint64_t data[4];"),
        (
            "blaslt.h",
            "  size_t workspace_bytes;\n  BlasStatus state;\n",
            "  BlasStatus state;\n  size_t workspace_bytes;\n",
        ),
        ("blaslt.h", "  int32_t reserved[4];\n", "  int32_t reserved[2];\n"),
        ("blaslt.h", "BlasCompute compute, BlasType scale", "BlasType scale, BlasCompute compute"),
        ("blaslt.h", "int64_t ld)", "int32_t ld)"),
        ("blaslt.h", "MatmulChoice* choices, int* found", "MatmulChoice* choices, size_t* found"),
        ("blaslt.h", "const MatmulAlgorithm* algorithm, void*", "MatmulAlgorithm algorithm, void*"),
        ("blaslt.cpp", '"cublasLtMatrixLayoutDestroy"', '"cublasLtGetVersion"'),
    ],
)
def test_a_wrong_declaration_is_found(tmp_path: Path, file: str, right: str, wrong: str) -> None:
    said = BLASLT.errors(BLASLT.changed(tmp_path / "ops", file, right, wrong), tmp_path)
    assert "static assertion failed" in said or "static_assert" in said


@pytest.mark.parametrize(
    ("file", "right", "wrong", "name"),
    [
        ("blaslt.h", "kNotSupported = 15,", "kNotSupported = 15, kNew = 16,", "BlasStatus::kNew"),
        ("blaslt.h", "size_t (*get_version)()", "size_t (*ask_version)()", "ask_version"),
    ],
)
def test_what_nothing_compares_is_found(
    tmp_path: Path, file: str, right: str, wrong: str, name: str
) -> None:
    assert name in BLASLT.unnamed(BLASLT.changed(tmp_path / "ops", file, right, wrong))
