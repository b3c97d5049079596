#include "collops/kernels/cuda/blaslt.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "collops/core/process/per_process.h"
#include "collops/core/process/shared_library.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/runtime.h"

namespace collops::cuda {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

PackageFolder& Packages() {
  static auto* const folder = new PackageFolder;
  return *folder;
}

std::string FindBlas() {
  for (const char* const name : kNames) {
    if (dlopen(name, RTLD_NOW | RTLD_NOLOAD) != nullptr) return name;
  }
  for (const char* const name : {"cu13/lib/libcublasLt.so.13", "cublas/lib/libcublasLt.so.12"}) {
    const std::string path = Packages().Find(name);
    if (!path.empty()) return path;
  }
  for (const char* const name : kNames) {
    if (dlopen(name, RTLD_NOW) != nullptr) return name;
  }
  return kNames[0];
}

struct LoadedBlas {
  BlasApi api = {};
  Status status;

  LoadedBlas() {
    SharedLibrary library("cuBLASLt", FindBlas().c_str());
    library.Find("cublasLtCreate", &api.create);
    library.Find("cublasLtGetStatusString", &api.get_status_string);
    library.Find("cublasLtGetVersion", &api.get_version);
    library.Find("cublasLtMatmulDescCreate", &api.desc_create);
    library.Find("cublasLtMatmulDescDestroy", &api.desc_destroy);
    library.Find("cublasLtMatmulDescSetAttribute", &api.desc_set);
    library.Find("cublasLtMatrixLayoutCreate", &api.layout_create);
    library.Find("cublasLtMatrixLayoutDestroy", &api.layout_destroy);
    library.Find("cublasLtMatmulPreferenceCreate", &api.preference_create);
    library.Find("cublasLtMatmulPreferenceDestroy", &api.preference_destroy);
    library.Find("cublasLtMatmulPreferenceSetAttribute", &api.preference_set);
    library.Find("cublasLtMatmulAlgoGetHeuristic", &api.choose);
    library.Find("cublasLtMatmulAlgoConfigGetAttribute", &api.get_attribute);
    library.Find("cublasLtMatmul", &api.matmul);
    status = library.status();
  }
};

}  // namespace

Status LoadBlas(const BlasApi** api) {
  static const LoadedBlas* const loaded = new LoadedBlas;
  *api = &loaded->api;
  return loaded->status;
}

void SetBlasPackages(const std::string& folder) {
  Packages().Set(folder);
}

Status ToStatus(const BlasApi& api, BlasStatus status, const char* call) {
  if (status == BlasStatus::kSuccess) return Ok();
  const bool lacks = status == BlasStatus::kNotSupported || status == BlasStatus::kArchMismatch;
  return Error(lacks ? ERROR_UNSUPPORTED : ERROR_RT_FAIL, call,
               " failed: ", api.get_status_string(status), " (", static_cast<int>(status), ")");
}

using kernels::DeviceMatrix;
using kernels::StreamStep;

namespace {

PerProcess<FreeList<BlasHandle>> free_handles_here;

// Products by device that some rank of this process has used: cuBLASLt has loaded their kernels.
struct UsedProducts {
  std::mutex mutex;
  std::set<std::pair<int, std::vector<int64_t>>> shapes;
};
PerProcess<UsedProducts> used_products_here;

// How long the first use of a kernel waits for a moment in which no call runs.
constexpr double kBetweenS = 10.0;
constexpr uint32_t kMostAligned = 16;
constexpr uint32_t kInt8Alignment = 4;
constexpr size_t kMostChoices = 256;
// How many algorithms are looked at for one that may run beside collectives.
constexpr int kMostFound = 32;

bool FindType(DType dtype, BlasType* type) {
  if (dtype == DType::kFloat32) *type = BlasType::kFloat32;
  if (dtype == DType::kFloat16) *type = BlasType::kFloat16;
  if (dtype == DType::kBFloat16) *type = BlasType::kBFloat16;
  if (dtype == DType::kInt8) *type = BlasType::kInt8;
  if (dtype == DType::kInt32) *type = BlasType::kInt32;
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kInt8 || dtype == DType::kInt32;
}

// The largest power of two, at most kMostAligned, that divides a row's bytes; the elements' size if
// the address is not aligned to it, but of int8 the least that there are products for.
uint32_t AlignmentOf(const DeviceMatrix& matrix, bool is_aligned) {
  if (!is_aligned && matrix.dtype == DType::kInt8) return kInt8Alignment;
  if (!is_aligned) return static_cast<uint32_t>(SizeOf(matrix.dtype));
  uint32_t alignment = kMostAligned;
  while (static_cast<uintptr_t>(matrix.ld * SizeOf(matrix.dtype)) % alignment != 0) alignment /= 2;
  return alignment;
}

bool IsAligned(const DeviceMatrix& matrix) {
  return reinterpret_cast<uintptr_t>(matrix.data) % AlignmentOf(matrix, true) == 0;
}

bool IsAligned(const StreamStep& step) {
  return IsAligned(step.a) && IsAligned(step.b) && IsAligned(step.c);
}

}  // namespace

// cuBLASLt's objects of one product. Rows there are columns here, so it is asked for the transposed
// product, c^T = b^T a^T, whose matrices lie in memory as c, b and a do.
class Matmul::Objects {
 public:
  explicit Objects(const BlasApi& api) : api_(api) {}
  ~Objects() {
    // The caller cannot act on an error of these calls.
    for (const MatrixLayout layout : {first_, second_, result_}) {
      if (layout != nullptr) static_cast<void>(api_.layout_destroy(layout));
    }
    if (desc_ != nullptr) static_cast<void>(api_.desc_destroy(desc_));
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;

  Status Make(const Shape& shape) {
    const bool is_whole = shape.a.dtype == DType::kInt8;
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(api_,
                 api_.desc_create(&desc_, is_whole ? BlasCompute::kInt32 : BlasCompute::kFloat32,
                                  is_whole ? BlasType::kInt32 : BlasType::kFloat32),
                 "cublasLtMatmulDescCreate"));
    COLLOPS_RETURN_IF_ERROR(Turn(DescAttribute::kTransposeA, shape.b.transposed));
    COLLOPS_RETURN_IF_ERROR(Turn(DescAttribute::kTransposeB, shape.a.transposed));
    if (shape.beside.multiprocessors > 0) {
      const int32_t left = shape.beside.multiprocessors;
      COLLOPS_RETURN_IF_ERROR(Set(DescAttribute::kMultiprocessors, left));
    }
    COLLOPS_RETURN_IF_ERROR(Add(shape.b, &first_));
    COLLOPS_RETURN_IF_ERROR(Add(shape.a, &second_));
    return Add(shape.c, &result_);
  }

  MatmulDesc desc() const { return desc_; }
  MatrixLayout first() const { return first_; }
  MatrixLayout second() const { return second_; }
  MatrixLayout result() const { return result_; }

 private:
  Status Turn(DescAttribute attribute, bool transposed) {
    return Set(attribute, transposed ? BlasOperation::kTransposed : BlasOperation::kAsItIs);
  }

  template <class Value>
  Status Set(DescAttribute attribute, const Value& value) {
    return ToStatus(api_, api_.desc_set(desc_, attribute, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
  }

  Status Add(const DeviceMatrix& matrix, MatrixLayout* layout) {
    BlasType type = BlasType::kFloat32;
    COLLOPS_CHECK_ARG(FindType(matrix.dtype, &type), ERROR_UNSUPPORTED,
                      "cuBLASLt has no products of ", Name(matrix.dtype));
    // Of the matrix as it lies in memory, before it is transposed.
    const int64_t rows = matrix.transposed ? matrix.rows : matrix.columns;
    const int64_t columns = matrix.transposed ? matrix.columns : matrix.rows;
    return ToStatus(api_,
                    api_.layout_create(layout, type, static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(columns), matrix.ld),
                    "cublasLtMatrixLayoutCreate");
  }

  const BlasApi& api_;
  MatmulDesc desc_ = nullptr;
  MatrixLayout first_ = nullptr;
  MatrixLayout second_ = nullptr;
  MatrixLayout result_ = nullptr;
};

std::vector<int64_t> Matmul::Shape::Numbers() const {
  std::vector<int64_t> numbers = {beside.waits, beside.multiprocessors, is_aligned};
  for (const DeviceMatrix& matrix : {a, b, c}) {
    numbers.insert(numbers.end(), {static_cast<int64_t>(matrix.dtype), matrix.rows, matrix.columns,
                                   matrix.ld, matrix.transposed});
  }
  return numbers;
}

bool Matmul::IsLoaded(const Shape& shape) const {
  UsedProducts& used = used_products_here.Get();
  const std::lock_guard<std::mutex> lock(used.mutex);
  return used.shapes.count({device_, shape.Numbers()}) > 0;
}

void Matmul::NoteLoaded(const Shape& shape) const {
  UsedProducts& used = used_products_here.Get();
  const std::lock_guard<std::mutex> lock(used.mutex);
  used.shapes.insert({device_, shape.Numbers()});
}

Matmul::Shape Matmul::ShapeOf(const StreamStep& step, bool is_aligned) {
  return {step.a, step.b, step.c, step.beside, is_aligned};
}

Status Matmul::Open() {
  COLLOPS_RETURN_IF_ERROR(Available());
  if (handle_ == nullptr) handle_ = free_handles_here.Get().Take(device_);
  if (handle_ != nullptr) return Ok();
  return ToStatus(*api_, api_->create(&handle_), "cublasLtCreate");
}

// Blocks that wait for each other, as those that split a sum may, or that must begin together might
// never get their places while blocks of collectives wait on most multiprocessors. Two that begin
// together do on sm_90: collectives leave at least an eighth of 132 free, and these are in at most
// 8 groups, of which one has two. On later GPUs both must be neighbours.
bool Matmul::MayRunBeside(const MatmulAlgorithm& algorithm) const {
  int32_t splits = 1;
  uint16_t cluster = 0;
  size_t written = 0;
  int major = 0;
  const bool known = api_->get_attribute(&algorithm, AlgorithmAttribute::kSplits, &splits,
                                         sizeof(splits), &written) == BlasStatus::kSuccess &&
                     api_->get_attribute(&algorithm, AlgorithmAttribute::kClusterShape, &cluster,
                                         sizeof(cluster), &written) == BlasStatus::kSuccess &&
                     driver_.device_get_attribute(&major, DeviceAttribute::kComputeCapabilityMajor,
                                                  device_) == Result::kSuccess;
  const auto shape = static_cast<ClusterShape>(cluster);
  const bool is_pair = shape == ClusterShape::kTwoByOne || shape == ClusterShape::kOneByTwo;
  const bool is_single = shape == ClusterShape::kAuto || shape == ClusterShape::kOneBlock;
  return known && (splits == 0 || splits == 1) && (is_single || (is_pair && major == 9));
}

Status Matmul::Find(const Shape& shape, const Objects& objects, MatmulChoice* choice) const {
  MatmulPreference preference = nullptr;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(*api_, api_->preference_create(&preference), "cublasLtMatmulPreferenceCreate"));
  const uint64_t most_bytes = kScratchBytes;
  const uint32_t scheme = shape.beside.waits ? kNoReduction : kReduceInComputeType;
  const auto set = [&](PreferenceAttribute attribute, const auto& value) {
    return ToStatus(*api_, api_->preference_set(preference, attribute, &value, sizeof(value)),
                    "cublasLtMatmulPreferenceSetAttribute");
  };
  std::vector<MatmulChoice> choices(shape.beside.waits ? kMostFound : 1);
  int found = 0;
  const Status chosen = [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kMaxWorkspaceBytes, most_bytes));
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kReductionSchemeMask, scheme));
    const uint32_t of_result = AlignmentOf(shape.c, shape.is_aligned);
    COLLOPS_RETURN_IF_ERROR(
        set(PreferenceAttribute::kMinAlignmentA, AlignmentOf(shape.b, shape.is_aligned)));
    COLLOPS_RETURN_IF_ERROR(
        set(PreferenceAttribute::kMinAlignmentB, AlignmentOf(shape.a, shape.is_aligned)));
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kMinAlignmentC, of_result));
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kMinAlignmentD, of_result));
    return ToStatus(*api_,
                    api_->choose(handle_, objects.desc(), objects.first(), objects.second(),
                                 objects.result(), objects.result(), preference,
                                 static_cast<int>(choices.size()), choices.data(), &found),
                    "cublasLtMatmulAlgoGetHeuristic");
  }();
  // The caller cannot act on an error of this call.
  static_cast<void>(api_->preference_destroy(preference));
  COLLOPS_RETURN_IF_ERROR(chosen);
  choices.resize(static_cast<size_t>(found));
  const auto best = std::find_if(choices.begin(), choices.end(), [&](const MatmulChoice& one) {
    return one.state == BlasStatus::kSuccess &&
           (!shape.beside.waits || MayRunBeside(one.algorithm));
  });
  COLLOPS_CHECK_ARG(best != choices.end(), ERROR_UNSUPPORTED, "cuBLASLt has no algorithm",
                    shape.beside.waits ? ", which may run beside collectives," : "",
                    " for a product of ", shape.a.rows, " x ", shape.a.columns, " and ",
                    shape.b.rows, " x ", shape.b.columns, " of ", Name(shape.a.dtype), " into ",
                    Name(shape.c.dtype));
  *choice = *best;
  return Ok();
}

Status Matmul::Choose(const Shape& shape, const Objects& objects,
                      const MatmulAlgorithm** algorithm) {
  const std::vector<int64_t> numbers = shape.Numbers();
  const auto known = std::find_if(choices_.begin(), choices_.end(),
                                  [&](const Choice& choice) { return choice.numbers == numbers; });
  if (known != choices_.end()) {
    *algorithm = &known->choice.algorithm;
    return Ok();
  }
  Choice choice = {numbers, {}};
  COLLOPS_RETURN_IF_ERROR(Find(shape, objects, &choice.choice));
  if (choices_.size() == kMostChoices) choices_.erase(choices_.begin());
  choices_.push_back(choice);
  *algorithm = &choices_.back().choice.algorithm;
  return Ok();
}

bool Matmul::FitsInt8(const StreamStep& step) {
  const auto fits = [](int64_t size) { return size % kInt8Alignment == 0; };
  return step.b.transposed && !step.a.transposed && fits(step.a.columns) && fits(step.c.columns) &&
         fits(step.a.ld) && fits(step.b.ld);
}

Status Matmul::Check(const StreamStep& step) {
  COLLOPS_RETURN_IF_ERROR(Open());
  const Shape shape = ShapeOf(step, true);
  Objects objects(*api_);
  COLLOPS_RETURN_IF_ERROR(objects.Make(shape));
  const MatmulAlgorithm* algorithm = nullptr;
  return Choose(shape, objects, &algorithm);
}

Status Matmul::RunShape(const Shape& shape, const StreamStep& step, void* scratch, int64_t bytes,
                        Stream stream) {
  COLLOPS_RETURN_IF_ERROR(Open());
  Objects objects(*api_);
  COLLOPS_RETURN_IF_ERROR(objects.Make(shape));
  const MatmulAlgorithm* algorithm = nullptr;
  COLLOPS_RETURN_IF_ERROR(Choose(shape, objects, &algorithm));
  const float one = 1.0F;
  const int32_t whole_one = 1;
  const int32_t zero = 0;  // the bits of 0.0F, too
  const void* const alpha = shape.a.dtype == DType::kInt8 ? static_cast<const void*>(&whole_one)
                                                          : static_cast<const void*>(&one);
  BlasStatus status = BlasStatus::kSuccess;
  const auto run = [&] {
    status = api_->matmul(handle_, objects.desc(), alpha, step.b.data, objects.first(), step.a.data,
                          objects.second(), &zero, step.c.data, objects.result(),
                          const_cast<void*>(step.c.data), objects.result(), algorithm, scratch,
                          static_cast<size_t>(bytes), stream);
  };
  // The other ranks of this process launch their parts of what runs, and nothing else before the
  // kernel has been loaded.
  const auto is_loaded = [&] { return IsLoaded(shape); };
  if (!shape.beside.waits || is_loaded()) {
    run();
  } else {
    RunningCalls::DoBetween(driver_, device_, kBetweenS, is_loaded, run);
  }
  if (status == BlasStatus::kSuccess) NoteLoaded(shape);
  return ToStatus(*api_, status, "cublasLtMatmul");
}

Status Matmul::Run(const StreamStep& step, void* scratch, int64_t bytes, Stream stream) {
  const Shape aligned = ShapeOf(step, true);
  const Shape least = ShapeOf(step, false);
  const bool only_least = step.beside.waits && !IsLoaded(aligned) && IsLoaded(least);
  const bool takes_least = only_least || !IsAligned(step);
  return RunShape(takes_least ? least : aligned, step, scratch, bytes, stream);
}

Status Matmul::Prepare(const StreamStep& step, void* scratch, int64_t bytes, Stream stream) {
  const Status least = RunShape(ShapeOf(step, false), step, scratch, bytes, stream);
  if (!IsAligned(step) || (!least.ok() && least.code() != ERROR_UNSUPPORTED)) return least;
  return RunShape(ShapeOf(step, true), step, scratch, bytes, stream);
}

void Matmul::Release() {
  if (handle_ != nullptr) free_handles_here.Get().Give(device_, {handle_});
  handle_ = nullptr;
  choices_.clear();
}

}  // namespace collops::cuda
