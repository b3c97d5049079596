// A simulated libcublasLt, from its published signatures.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "blas/matmul.h"
#include "driver/context.h"
#include "driver/memory.h"

using namespace collops_sim;

namespace {

constexpr uintptr_t kGoodAlignment = 16;
constexpr size_t kWorkspace = 65536;  // of the algorithm that splits the inner sum
constexpr int kMostParts = 2;
constexpr int kCluster = 4;  // blocks of the algorithm whose blocks come in clusters

// cublasLtReductionScheme_t: what parts of a sum are added up in.
constexpr uint32_t kInComputeType = 2;
constexpr uint32_t kInOutputType = 4;
constexpr uint32_t kAllReductions = 7;

struct Handle {
  Context* context;
};

struct Preference {
  uint64_t most_workspace = 0;
  uint32_t reductions = kAllReductions;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C and D
};

// What is in the 64 bytes of cublasLtMatmulAlgo_t here.
struct Algorithm {
  uint64_t magic;
  uint64_t parts;
  uint64_t workspace;
  uint64_t alignment;  // that it needs
  uint64_t rounds_parts;
  uint64_t cluster;  // blocks
  uint64_t unused[2];
};
constexpr uint64_t kMagic = 0x73696d616c676f;

struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  Blas state;
  float waves;
  int reserved[4];
};

struct Known {
  std::mutex mutex;
  std::set<const void*> handles;
};
Known& GetKnown() {
  static auto* const known = new Known;
  return *known;
}

// Products that were put on streams, by the multiprocessors that they were chosen for; 0: all.
std::atomic<int> products_for[kMultiprocessors + 1];

Blas Refuse(Blas status, const std::string& text) {
  collops_sim::Refuse(kInvalidValue, "cuBLASLt: " + text);
  return status;
}

Blas Enter(const char* function) {
  return static_cast<Blas>(PlannedFailure(function));
}

bool IsHandle(const void* handle) {
  Known& known = GetKnown();
  const std::lock_guard<std::mutex> lock(known.mutex);
  return known.handles.count(handle) != 0;
}

template <class T>
Blas Set(T* field, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return Refuse(Blas::kInvalidValue, "the attribute has another size");
  std::memcpy(field, value, bytes);
  return Blas::kSuccess;
}

// The alignment that 16-byte loads of both matrix and its columns have; what is less has fewer
// algorithms on a GPU, and here none below the element.
uint64_t AlignmentOf(const Product& product) {
  uint64_t least = kGoodAlignment;
  const struct {
    const void* data;
    const Layout& layout;
  } matrices[] = {
      {product.a_data, product.a}, {product.b_data, product.b}, {product.d_data, product.d}};
  for (const auto& [data, layout] : matrices) {
    const uint64_t pitch = static_cast<uint64_t>(layout.stride) * BlasSize(layout.type);
    while (least > 1 && (reinterpret_cast<uintptr_t>(data) % least != 0 || pitch % least != 0)) {
      least /= 2;
    }
  }
  return least;
}

std::string CheckMemory(const Product& product, int device) {
  std::string wrong = CheckOnDevice(product.a_data, product.a.Bytes(), device);
  if (wrong.empty()) wrong = CheckOnDevice(product.b_data, product.b.Bytes(), device);
  if (wrong.empty()) wrong = CheckOnDevice(product.d_data, product.d.Bytes(), device);
  return wrong;
}

// What a product is compiled for here: on a GPU other shapes may have other kernels, too.
std::string KernelOf(const Product& product, const Algorithm& algorithm) {
  std::string name = "product";
  for (const uint64_t number :
       {static_cast<uint64_t>(product.a.type), static_cast<uint64_t>(product.d.type),
        static_cast<uint64_t>(product.plan.transposes_a),
        static_cast<uint64_t>(product.plan.transposes_b), product.d.rows, product.d.columns,
        product.a.rows, product.a.columns, algorithm.parts, algorithm.alignment,
        algorithm.cluster}) {
    name += " " + std::to_string(number);
  }
  return name;
}

// Blocks that wait for each other, or come together, need several places at once: here they get
// none while a kernel waits for a signal.
bool FindPlace(const Algorithm& algorithm, const Context& context) {
  if (algorithm.parts == 1 && algorithm.cluster == 1) return true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(TimeoutS());
  while (context.waiting > 0) {
    if (std::chrono::steady_clock::now() > end) {
      Mistake("blocks of a product that need each other found no place beside kernels that wait");
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

std::string CheckWorkspace(const Algorithm& algorithm, const void* workspace, size_t bytes,
                           int device) {
  if (bytes < algorithm.workspace) return "the algorithm needs a larger workspace";
  if (bytes > 0 && reinterpret_cast<uintptr_t>(workspace) % kGoodAlignment != 0) {
    return "the workspace is not aligned to 16 bytes";
  }
  return CheckOnDevice(workspace, bytes, device);
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() {
  return 130100;
}
const char* cublasLtGetStatusName(Blas status) {
  switch (status) {
    case Blas::kSuccess:
      return "CUBLAS_STATUS_SUCCESS";
    case Blas::kNotInitialized:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case Blas::kAllocFailed:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case Blas::kInvalidValue:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case Blas::kArchMismatch:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case Blas::kExecutionFailed:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case Blas::kInternalError:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case Blas::kNotSupported:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}
const char* cublasLtGetStatusString(Blas status) {
  return cublasLtGetStatusName(status);
}

Blas cublasLtCreate(void** handle) {
  const Blas entered = Enter("cublasLtCreate");
  if (entered != Blas::kSuccess) return entered;
  Context* const context = CurrentContext();
  if (context == nullptr) return Refuse(Blas::kNotInitialized, "there is no current context");
  Known& known = GetKnown();
  const std::lock_guard<std::mutex> lock(known.mutex);
  *handle = new Handle{context};
  known.handles.insert(*handle);
  return Blas::kSuccess;
}
Blas cublasLtMatmulDescCreate(MatmulPlan** plan, int32_t compute, int32_t scale) {
  const bool is_whole = compute == kComputeWhole32 && scale == kWhole32;
  if (!is_whole && (compute != kCompute32 || scale != kReal32)) {
    return Refuse(Blas::kNotSupported, "the simulation computes in float32 or int32");
  }
  *plan = new MatmulPlan;
  (*plan)->is_whole = is_whole;
  return Blas::kSuccess;
}
Blas cublasLtMatmulDescDestroy(MatmulPlan* plan) {
  delete plan;
  return Blas::kSuccess;
}
Blas cublasLtMatmulDescSetAttribute(MatmulPlan* plan, int32_t attribute, const void* value,
                                    size_t bytes) {
  constexpr int32_t kTransA = 3, kTransB = 4, kMultiprocessors = 15;
  if (attribute == kTransA) return Set(&plan->transposes_a, value, bytes);
  if (attribute == kTransB) return Set(&plan->transposes_b, value, bytes);
  if (attribute == kMultiprocessors) return Set(&plan->multiprocessors, value, bytes);
  return Refuse(Blas::kNotSupported, "the simulation does not know this attribute");
}

Blas cublasLtMatrixLayoutCreate(Layout** layout, int32_t type, uint64_t rows, uint64_t columns,
                                int64_t stride) {
  *layout = new Layout{type, rows, columns, stride};
  return Blas::kSuccess;
}
Blas cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return Blas::kSuccess;
}
Blas cublasLtMatmulPreferenceCreate(Preference** preference) {
  *preference = new Preference;
  return Blas::kSuccess;
}
Blas cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return Blas::kSuccess;
}
Blas cublasLtMatmulPreferenceSetAttribute(Preference* preference, int32_t attribute,
                                          const void* value, size_t bytes) {
  constexpr int32_t kMostWorkspace = 1, kReductions = 3, kFirstAlignment = 5;
  if (attribute == kReductions) return Set(&preference->reductions, value, bytes);
  if (attribute == kMostWorkspace) return Set(&preference->most_workspace, value, bytes);
  const int32_t matrix = attribute - kFirstAlignment;
  if (matrix >= 0 && matrix < 4) return Set(&preference->alignments[matrix], value, bytes);
  return Refuse(Blas::kNotSupported, "the simulation does not know this attribute");
}

// One algorithm of plain blocks without a workspace. Before it one that splits the inner sum where
// a workspace is allowed: its parts are rounded to D's type before they are added up, unless that
// is excluded; and one of clusters of blocks.
Blas cublasLtMatmulAlgoGetHeuristic(void* handle, const MatmulPlan* plan, const Layout* a,
                                    const Layout* b, const Layout* c, const Layout* d,
                                    const Preference* preference, int wished, Heuristic* found,
                                    int* num_found) {
  const Blas entered = Enter("cublasLtMatmulAlgoGetHeuristic");
  if (entered != Blas::kSuccess) return entered;
  if (!IsHandle(handle)) return Blas::kNotInitialized;
  *num_found = 0;
  if (wished < 1) return Refuse(Blas::kInvalidValue, "no algorithm was asked for");
  const Product product{*plan, *a, *b, *c, *d};
  const std::string wrong = CheckShapes(product);
  if (!wrong.empty()) return Refuse(Blas::kNotSupported, wrong);
  const uint32_t* const given = preference->alignments;
  const uint64_t alignment =
      std::min<uint64_t>({given[0], given[1], given[2], given[3], AlignmentOf(product)});
  const bool may_round = (preference->reductions & kInOutputType) != 0;
  const bool may_split = may_round || (preference->reductions & kInComputeType) != 0;
  if (preference->most_workspace >= kWorkspace && may_split) {
    const uint64_t rounds = may_round ? 1 : 0;
    found[(*num_found)++] = {{kMagic, kMostParts, kWorkspace, alignment, rounds, 1, {}},
                             kWorkspace,
                             Blas::kSuccess,
                             1.0F,
                             {}};
  }
  for (const uint64_t cluster : {kCluster, 1}) {
    if (*num_found == wished) break;
    found[(*num_found)++] = {
        {kMagic, 1, 0, alignment, 0, cluster, {}}, 0, Blas::kSuccess, 1.0F, {}};
  }
  return Blas::kSuccess;
}

Blas cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int32_t attribute,
                                          void* value, size_t bytes, size_t* written) {
  constexpr int32_t kSplit = 2, kClusterShape = 8;
  constexpr uint16_t kOneBlock = 2, kFourBlocks = 4;  // 1x1x1 and 4x1x1
  const auto parts = static_cast<int32_t>(algorithm->parts);
  const uint16_t shape = algorithm->cluster == 1 ? kOneBlock : kFourBlocks;
  const bool splits = attribute == kSplit;
  if (!splits && attribute != kClusterShape) {
    return Refuse(Blas::kNotSupported, "the simulation does not know this attribute");
  }
  const size_t size = splits ? sizeof(parts) : sizeof(shape);
  if (bytes < size) return Refuse(Blas::kInvalidValue, "the attribute is longer");
  std::memcpy(value, splits ? static_cast<const void*>(&parts) : &shape, size);
  if (written != nullptr) *written = size;
  return Blas::kSuccess;
}

Blas cublasLtMatmul(void* handle, const MatmulPlan* plan, const void* alpha, const void* a_data,
                    const Layout* a, const void* b_data, const Layout* b, const void* beta,
                    const void*, const Layout* c, void* d_data, const Layout* d,
                    const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                    void* stream_handle) {
  const Blas entered = Enter("cublasLtMatmul");
  if (entered != Blas::kSuccess) return entered;
  if (!IsHandle(handle)) return Blas::kNotInitialized;
  Stream* stream = nullptr;
  if (FindHere(stream_handle, &stream) != Result::kSuccess ||
      ContextOf(stream) != static_cast<Handle*>(handle)->context) {
    return Refuse(Blas::kInvalidValue, "the stream is not one of the handle's context");
  }
  Product product{*plan, *a, *b, *c, *d, a_data, b_data, d_data};
  if (!plan->is_whole) std::memcpy(&product.alpha, alpha, sizeof(float));
  float times_c = 0;
  std::memcpy(&times_c, beta, sizeof(float));
  if (times_c != 0) return Refuse(Blas::kNotSupported, "the simulation adds no C");
  const int device = ContextOf(stream)->device;
  std::string wrong = CheckShapes(product);
  if (wrong.empty() && plan->is_whole && AlignmentOf(product) < 4) {
    wrong = "of int8 addresses are multiples of 4";
  }
  if (wrong.empty()) wrong = CheckMemory(product, device);
  // Without an algorithm it asks its own heuristic, which takes what alignment there is.
  const Algorithm own{kMagic, 1, 0, 1, 0, 1, {}};
  const Algorithm& chosen = algorithm == nullptr ? own : *algorithm;
  if (chosen.magic != kMagic) wrong = "the algorithm is none of the heuristic's";
  if (wrong.empty()) wrong = CheckWorkspace(chosen, workspace, workspace_bytes, device);
  if (wrong.empty() && AlignmentOf(product) < chosen.alignment) {
    wrong = "the matrices are aligned to fewer bytes than the heuristic was told";
  }
  if (!wrong.empty()) return Refuse(Blas::kInvalidValue, wrong);
  LoadOnce(ContextOf(stream), KernelOf(product, chosen));
  ++products_for[std::clamp(plan->multiprocessors, 0, kMultiprocessors)];
  const int parts = static_cast<int>(chosen.parts);
  const size_t used = chosen.workspace;
  const bool rounds = chosen.rounds_parts != 0;
  const Result result = stream->Enqueue(
      [=, kept = chosen, context = ContextOf(stream)] {
        if (!FindPlace(kept, *context)) return kLaunchTimeout;
        // What an algorithm leaves in its workspace is of no use to anyone.
        if (used > 0) std::memset(HostView(reinterpret_cast<uint64_t>(workspace)), 0xA5, used);
        Multiply(product, parts, rounds);
        return Result::kSuccess;
      },
      {a_data, b_data, d_data, workspace});
  return result == Result::kSuccess ? Blas::kSuccess : Blas::kExecutionFailed;
}

// For tests: how many products of this process were chosen for so many multiprocessors; 0: for all.
int SimProductsFor(int multiprocessors) {
  return products_for[multiprocessors];
}

}  // extern "C"
