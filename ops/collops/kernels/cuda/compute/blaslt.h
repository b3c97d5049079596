#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver/types.h"

namespace collops::cuda {

// cuBLASLt's functions and types, declared here as cublasLt.h publishes them; a test compares these
// declarations with that header. Its matrices lie column by column.

using BlasHandle = void*;
using MatmulDesc = void*;
using MatrixLayout = void*;
using MatmulPreference = void*;

// cublasStatus_t: those that are looked at here.
enum class BlasStatus : int32_t {
  kSuccess = 0,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kArchMismatch = 8,
  kNotSupported = 15,
};

// cudaDataType_t, cublasComputeType_t and cublasOperation_t.
enum class BlasType : int32_t { kFloat32 = 0, kFloat16 = 2, kBFloat16 = 14 };
enum class BlasCompute : int32_t { kFloat32 = 68 };
enum class BlasOperation : int32_t { kAsItIs = 0, kTransposed = 1 };

// cublasLtMatmulDescAttributes_t and cublasLtMatmulPreferenceAttributes_t.
enum class DescAttribute : int32_t { kTransposeA = 3, kTransposeB = 4, kMultiprocessors = 15 };
enum class PreferenceAttribute : int32_t {
  kMaxWorkspaceBytes = 1,
  kReductionSchemeMask = 3,
  kMinAlignmentA = 5,
  kMinAlignmentB = 6,
  kMinAlignmentC = 7,
  kMinAlignmentD = 8,
};
// cublasLtMatmulAlgoConfigAttributes_t, and some of cublasLtClusterShape_t.
enum class AlgorithmAttribute : int32_t { kSplits = 2, kClusterShape = 8 };
enum class ClusterShape : int32_t { kAuto = 0, kOneBlock = 2, kTwoByOne = 3, kOneByTwo = 5 };
// cublasLtReductionScheme_t: no sum is split, or what is split is added up in float32.
constexpr uint32_t kNoReduction = 0;
constexpr uint32_t kReduceInComputeType = 2;

// cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t.
struct MatmulAlgorithm {
  uint64_t data[8];
};
struct MatmulChoice {
  MatmulAlgorithm algorithm;
  size_t workspace_bytes;
  BlasStatus state;
  float waves;
  int32_t reserved[4];
};

struct BlasApi {
  BlasStatus (*create)(BlasHandle* handle);
  const char* (*get_status_string)(BlasStatus status);
  size_t (*get_version)();
  BlasStatus (*desc_create)(MatmulDesc* desc, BlasCompute compute, BlasType scale);
  BlasStatus (*desc_destroy)(MatmulDesc desc);
  BlasStatus (*desc_set)(MatmulDesc desc, DescAttribute attribute, const void* value, size_t bytes);
  BlasStatus (*layout_create)(MatrixLayout* layout, BlasType type, uint64_t rows, uint64_t columns,
                              int64_t ld);
  BlasStatus (*layout_destroy)(MatrixLayout layout);
  BlasStatus (*preference_create)(MatmulPreference* preference);
  BlasStatus (*preference_destroy)(MatmulPreference preference);
  BlasStatus (*preference_set)(MatmulPreference preference, PreferenceAttribute attribute,
                               const void* value, size_t bytes);
  BlasStatus (*choose)(BlasHandle handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b,
                       MatrixLayout c, MatrixLayout d, MatmulPreference preference, int wanted,
                       MatmulChoice* choices, int* found);
  BlasStatus (*get_attribute)(const MatmulAlgorithm* algorithm, AlgorithmAttribute attribute,
                              void* value, size_t bytes, size_t* written);
  BlasStatus (*matmul)(BlasHandle handle, MatmulDesc desc, const void* alpha, const void* a,
                       MatrixLayout a_layout, const void* b, MatrixLayout b_layout,
                       const void* beta, const void* c, MatrixLayout c_layout, void* d,
                       MatrixLayout d_layout, const MatmulAlgorithm* algorithm, void* workspace,
                       size_t workspace_bytes, Stream stream);
};

// Opens cuBLASLt once per process, and leaves it open: what the process has loaded already, such as
// torch's; else the wheel's; else what the loader finds, of CUDA 13 or 12. ERROR_UNSUPPORTED with
// the loader's message if there is none.
Status LoadBlas(const BlasApi** api);
// The folder in which NVIDIA's Python packages lie; before the first LoadBlas() only.
void SetBlasPackages(const std::string& folder);

// Turns a status into a Status: Ok, or an error code with the function's name (`call`) and
// cuBLAS' text; ERROR_UNSUPPORTED for what it does not have.
Status ToStatus(const BlasApi& api, BlasStatus status, const char* call);

}  // namespace collops::cuda
