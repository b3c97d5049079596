#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/stream_compute.h"

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
enum class BlasType : int32_t {
  kFloat32 = 0,
  kFloat16 = 2,
  kInt8 = 3,
  kInt32 = 10,
  kBFloat16 = 14
};
enum class BlasCompute : int32_t { kFloat32 = 68, kInt32 = 72 };
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

// Products of one device by cuBLASLt, c = a * b of StreamStep, added up in float32, or in int32
// those of int8, for which FitsInt8(). The algorithm of each shape is chosen once. One thread at a
// time, with that device as the thread's current one. cuBLASLt loads an algorithm's kernel when it
// is first used, and may then wait until the device is idle; beside collectives that waits for a
// moment between them. Nothing else here waits.
class Matmul {
 public:
  // `device` changes once, from -1 to the GPU's number.
  Matmul(const DriverApi& driver, const std::atomic<int>& device)
      : driver_(driver), device_(device) {}
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // cuBLASLt has products of int8 of a transposed `b` alone, whose sizes, and c's columns, are
  // multiples of 4, and so are the addresses.
  static bool FitsInt8(const kernels::StreamStep& step);

  // Scratch memory of any product.
  static constexpr int64_t kScratchBytes = int64_t{32} << 20;

  Status Available() { return LoadBlas(&api_); }
  // Ok, or ERROR_UNSUPPORTED if cuBLASLt has no such product.
  Status Check(const kernels::StreamStep& step);
  // Beside collectives, if only the algorithm for the least alignment has been used, that one runs.
  Status Run(const kernels::StreamStep& step, void* scratch, int64_t bytes, Stream stream);
  // Uses the algorithms for the matrices' alignment and for the least, of which one serves any
  // later product with these shapes.
  Status Prepare(const kernels::StreamStep& step, void* scratch, int64_t bytes, Stream stream);
  // Lets go of the handle, which the device's next user gets: its products are past. To destroy it
  // would wait for the device, and so for a kernel that may wait for this rank's next call.
  void Release();

 private:
  struct Shape {
    kernels::DeviceMatrix a, b, c;  // without their addresses
    kernels::Beside beside;
    bool is_aligned;  // the addresses, as much as the rows are; else to the elements only
    std::vector<int64_t> Numbers() const;  // which tell it from all others
  };
  struct Choice {
    std::vector<int64_t> numbers;  // of the shape
    MatmulChoice choice;
  };
  class Objects;

  static Shape ShapeOf(const kernels::StreamStep& step, bool is_aligned);
  bool IsLoaded(const Shape& shape) const;
  void NoteLoaded(const Shape& shape) const;
  bool MayRunBeside(const MatmulAlgorithm& algorithm) const;
  Status Find(const Shape& shape, const Objects& objects, MatmulChoice* choice) const;
  Status Choose(const Shape& shape, const Objects& objects, const MatmulAlgorithm** algorithm);
  Status RunShape(const Shape& shape, const kernels::StreamStep& step, void* scratch, int64_t bytes,
                  Stream stream);
  Status Open();

  const DriverApi& driver_;
  const std::atomic<int>& device_;
  const BlasApi* api_ = nullptr;
  BlasHandle handle_ = nullptr;
  std::vector<Choice> choices_;
};

}  // namespace collops::cuda
