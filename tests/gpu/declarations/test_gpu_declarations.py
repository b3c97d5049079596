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
    namespace="collops::cuda",
    # The functions by the names that they have in libcuda.
    before="#define __CUDA_API_VERSION_INTERNAL",
)
NCCL = Comparison(
    name="nccl",
    headers=("nccl.h", *RUNTIME),
    folder="collops/comm/backends/nccl",
    types="library.h",
    api="library.h",
    table="Api",
    load="library.cpp",
    namespace="collops::nccl",
    theirs="constexpr ncclConfig_t kTheirConfig = NCCL_CONFIG_INITIALIZER;",
    # A config of ours is the beginning of a newer version's, and the whole of its own version's.
    more="""
static_assert(sizeof(Config) == sizeof(ncclConfig_t) || NCCL_VERSION_CODE >= kConfigVersion + 100);
static_assert(kTheirConfig.size == sizeof(ncclConfig_t));
static_assert(Equal(kConfigNotSet, kTheirConfig.blocking));""",
)
BLASLT = Comparison(
    name="blaslt",
    headers=("cublasLt.h", *RUNTIME),
    folder=KERNELS,
    types="blaslt.h",
    api="blaslt.h",
    table="BlasApi",
    load="blaslt.cpp",
    namespace="collops::cuda",
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
        (DRIVER, "using DevicePointer = uint64_t;", "using DevicePointer = uint32_t;"),
        (DRIVER, "char reserved[64];", "char reserved[32];"),
        (DRIVER, "(*mem_alloc)(DevicePointer* pointer,", "(*mem_alloc)(DevicePointer pointer,"),
        (DRIVER, '"cuStreamDestroy_v2"', '"cuStreamWaitEvent"'),
        (NCCL, "kUniqueIdBytes = 128", "kUniqueIdBytes = 64"),
        (NCCL, "  int32_t nvls_ctas;\n", "  const char* nvls_ctas;\n"),
        (NCCL, "kConfigVersion = 22700", "kConfigVersion = 99900"),
        (NCCL, "UniqueId id, int rank, Config", "UniqueId* id, int rank, Config"),
        (BLASLT, "enum class BlasCompute : int32_t", "enum class BlasCompute : int64_t"),
        (BLASLT, "  int32_t reserved[4];\n", "  int32_t reserved[2];\n"),
        (BLASLT, "BlasCompute compute, BlasType scale", "BlasType scale, BlasCompute compute"),
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
        (NCCL, "(*comm_abort)(Comm comm)", "(*comm_end)(Comm comm)", "comm_end"),
    ],
)
def test_what_nothing_compares_is_found(
    tmp_path: Path, compared: Comparison, right: str, wrong: str, name: str
) -> None:
    assert name in compared.unnamed(compared.changed(tmp_path / "ops", right, wrong))
