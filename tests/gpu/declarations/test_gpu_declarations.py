"""What the library declares of CUDA's driver, NCCL and cuBLASLt against their headers, by a
compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.declarations.comparison import OPS, Comparison, given_folders

KERNELS, RUNTIME = "collops/kernels/cuda", ("cuda_runtime.h", "crt/host_config.h")
DRIVER = Comparison(
    name="driver",
    headers=("cuda.h",),
    folder=KERNELS,
    types="driver.h",
    api="driver.h",
    table="DriverApi",
    load="driver.cpp",
)
NCCL = Comparison(
    name="nccl",
    headers=("nccl.h", *RUNTIME),
    folder="collops/comm/backends/nccl",
    types="library.h",
    api="library.h",
    table="Api",
    load="library.cpp",
)
BLASLT = Comparison(
    name="blaslt",
    headers=("cublasLt.h", *RUNTIME),
    folder=KERNELS,
    types="blaslt.h",
    api="blaslt.h",
    table="BlasApi",
    load="blaslt.cpp",
)


@pytest.mark.parametrize(
    ("compared", "first"),
    [
        (DRIVER, None),
        (BLASLT, None),
        # Of the oldest version that is taken, and of a recent one, where both are there.
        *((NCCL, folder) for folder in given_folders("nccl.h") or [None]),
    ],
    ids=str,
)
def test_our_declarations_are_the_vendors(
    tmp_path: Path, compared: Comparison, first: Path | None
) -> None:
    assert compared.unnamed(OPS) == set()
    assert compared.errors(OPS, tmp_path, first) == ""


@pytest.mark.parametrize(
    ("compared", "right", "wrong"),
    [
        (DRIVER, "kNotReady = 600", "kNotReady = 601"),
        (DRIVER, "  void* win32_metadata;\n", ""),
        (DRIVER, "using DevicePointer = uint64_t;", "using DevicePointer = uint32_t;"),
        (DRIVER, "char reserved[64];", "char reserved[32];"),
        (DRIVER, "(*mem_alloc)(DevicePointer* pointer,", "(*mem_alloc)(DevicePointer pointer,"),
        (DRIVER, "(*event_query)(Event event)", "(*event_query)(Event event, unsigned int flags)"),
        (DRIVER, "unsigned int block_z, unsigned int shared", "unsigned int shared"),
        (DRIVER, '"cuStreamDestroy_v2"', '"cuStreamWaitEvent"'),
        (NCCL, "kRemoteError = 6", "kRemoteError = 8"),
        (NCCL, "kInt64 = 4", "kInt64 = 5"),
        (NCCL, "kMax = 2, kMin = 3", "kMax = 3, kMin = 2"),
        (NCCL, "kUniqueIdBytes = 128", "kUniqueIdBytes = 64"),
        (NCCL, "  int32_t traffic_class;\n", ""),
        (NCCL, "  int32_t nvls_ctas;\n", "  const char* nvls_ctas;\n"),
        (NCCL, "kConfigMagic = 0xcafebeef", "kConfigMagic = 0xcafebeee"),
        (NCCL, "kConfigVersion = 22700", "kConfigVersion = 99900"),
        (NCCL, "UniqueId id, int rank, Config", "UniqueId* id, int rank, Config"),
        (
            NCCL,
            "DataType type, Reduction op,\n                       Comm",
            "Reduction op, DataType type,\n                       Comm",
        ),
        (NCCL, "DataType type, int root,", "DataType type,"),
        (NCCL, "(*comm_abort)(Comm comm)", "(*comm_abort)(Comm* comm)"),
        (NCCL, '"ncclBroadcast"', '"ncclReduce"'),
        (BLASLT, "kArchMismatch = 8", "kArchMismatch = 9"),
        (BLASLT, "kBFloat16 = 14", "kBFloat16 = 15"),
        (BLASLT, "enum class BlasCompute : int32_t", "enum class BlasCompute : int64_t"),
        (BLASLT, "kMinAlignmentD = 8", "kMinAlignmentD = 9"),
        (BLASLT, "kReduceInComputeType = 2", "kReduceInComputeType = 1"),
        (BLASLT, "kMultiprocessors = 15", "kMultiprocessors = 14"),
        (BLASLT, "kClusterShape = 8", "kClusterShape = 7"),
        (BLASLT, "kTwoByOne = 3", "kTwoByOne = 4"),
        (BLASLT, "uint64_t data[8];", "uint64_t data[4];"),
        (
            BLASLT,
            "  size_t workspace_bytes;\n  BlasStatus state;\n",
            "  BlasStatus state;\n  size_t workspace_bytes;\n",
        ),
        (BLASLT, "  int32_t reserved[4];\n", "  int32_t reserved[2];\n"),
        (BLASLT, "BlasCompute compute, BlasType scale", "BlasType scale, BlasCompute compute"),
        (BLASLT, "int64_t ld)", "int32_t ld)"),
        (BLASLT, "MatmulChoice* choices, int* found", "MatmulChoice* choices, size_t* found"),
        (BLASLT, "const MatmulAlgorithm* algorithm, void*", "MatmulAlgorithm algorithm, void*"),
        (BLASLT, '"cublasLtMatrixLayoutDestroy"', '"cublasLtGetVersion"'),
    ],
)
def test_a_wrong_declaration_is_found(
    tmp_path: Path, compared: Comparison, right: str, wrong: str
) -> None:
    said = compared.errors(compared.changed(tmp_path / "ops", right, wrong), tmp_path)
    assert "static assertion failed" in said or "static_assert" in said


@pytest.mark.parametrize(
    ("compared", "right", "wrong", "name"),
    [
        (DRIVER, "kNotReady = 600,", "kNotReady = 600, kNew = 9,", "Result::kNew"),
        (DRIVER, "(*event_query)(Event event)", "(*event_ask)(Event event)", "event_ask"),
        (NCCL, "kInProgress = 7,", "kInProgress = 7, kNew = 9,", "Result::kNew"),
        (NCCL, "(*comm_abort)(Comm comm)", "(*comm_end)(Comm comm)", "comm_end"),
        (BLASLT, "kNotSupported = 15,", "kNotSupported = 15, kNew = 16,", "BlasStatus::kNew"),
        (BLASLT, "size_t (*get_version)()", "size_t (*ask_version)()", "ask_version"),
    ],
)
def test_what_nothing_compares_is_found(
    tmp_path: Path, compared: Comparison, right: str, wrong: str, name: str
) -> None:
    assert name in compared.unnamed(compared.changed(tmp_path / "ops", right, wrong))
