#include "collops/kernels/cuda/compute/matmul.h"

#include <algorithm>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/compute/free_list.h"

namespace collops::cuda {

using kernels::DeviceMatrix;
using kernels::StreamStep;

namespace {

PerProcess<FreeList<BlasHandle>> free_handles_here;

constexpr uint32_t kMostAligned = 16;
constexpr size_t kMostChoices = 64;

bool FindType(DType dtype, BlasType* type) {
  if (dtype == DType::kFloat32) *type = BlasType::kFloat32;
  if (dtype == DType::kFloat16) *type = BlasType::kFloat16;
  if (dtype == DType::kBFloat16) *type = BlasType::kBFloat16;
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// The largest power of two, at most kMostAligned, that divides the address and a row's bytes.
uint32_t AlignmentOf(const DeviceMatrix& matrix, bool has_address) {
  const auto address = has_address ? reinterpret_cast<uintptr_t>(matrix.data) : uintptr_t{0};
  const uintptr_t bits = address | static_cast<uintptr_t>(matrix.ld * SizeOf(matrix.dtype));
  uint32_t alignment = kMostAligned;
  while (bits % alignment != 0) alignment /= 2;
  return alignment;
}

bool HaveOneShape(const DeviceMatrix& a, const DeviceMatrix& b) {
  return a.dtype == b.dtype && a.rows == b.rows && a.columns == b.columns && a.ld == b.ld &&
         a.transposed == b.transposed;
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
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(api_, api_.desc_create(&desc_, BlasCompute::kFloat32, BlasType::kFloat32),
                 "cublasLtMatmulDescCreate"));
    COLLOPS_RETURN_IF_ERROR(Turn(DescAttribute::kTransposeA, shape.b.transposed));
    COLLOPS_RETURN_IF_ERROR(Turn(DescAttribute::kTransposeB, shape.a.transposed));
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
    const auto operation = transposed ? BlasOperation::kTransposed : BlasOperation::kAsItIs;
    return ToStatus(api_, api_.desc_set(desc_, attribute, &operation, sizeof(operation)),
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

bool Matmul::Shape::operator==(const Shape& other) const {
  return HaveOneShape(a, other.a) && HaveOneShape(b, other.b) && HaveOneShape(c, other.c) &&
         std::equal(std::begin(alignments), std::end(alignments), std::begin(other.alignments));
}

Matmul::Shape Matmul::ShapeOf(const StreamStep& step, bool has_addresses) {
  return {step.a,
          step.b,
          step.c,
          {AlignmentOf(step.b, has_addresses), AlignmentOf(step.a, has_addresses),
           AlignmentOf(step.c, has_addresses)}};
}

Status Matmul::Open() {
  COLLOPS_RETURN_IF_ERROR(Available());
  if (handle_ == nullptr) handle_ = free_handles_here.Get().Take(device_);
  if (handle_ != nullptr) return Ok();
  return ToStatus(*api_, api_->create(&handle_), "cublasLtCreate");
}

Status Matmul::Choose(const Shape& shape, const Objects& objects,
                      const MatmulAlgorithm** algorithm) {
  const auto known = std::find_if(choices_.begin(), choices_.end(),
                                  [&](const Choice& choice) { return choice.shape == shape; });
  if (known != choices_.end()) {
    *algorithm = &known->choice.algorithm;
    return Ok();
  }
  MatmulPreference preference = nullptr;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(*api_, api_->preference_create(&preference), "cublasLtMatmulPreferenceCreate"));
  const uint64_t most_bytes = kScratchBytes;
  const uint32_t scheme = kReduceInComputeType;
  const auto set = [&](PreferenceAttribute attribute, const auto& value) {
    return ToStatus(*api_, api_->preference_set(preference, attribute, &value, sizeof(value)),
                    "cublasLtMatmulPreferenceSetAttribute");
  };
  Choice choice = {shape, {}};
  int found = 0;
  const Status chosen = [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kMaxWorkspaceBytes, most_bytes));
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kReductionSchemeMask, scheme));
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kMinAlignmentA, shape.alignments[0]));
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kMinAlignmentB, shape.alignments[1]));
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kMinAlignmentC, shape.alignments[2]));
    COLLOPS_RETURN_IF_ERROR(set(PreferenceAttribute::kMinAlignmentD, shape.alignments[2]));
    return ToStatus(
        *api_,
        api_->choose(handle_, objects.desc(), objects.first(), objects.second(), objects.result(),
                     objects.result(), preference, 1, &choice.choice, &found),
        "cublasLtMatmulAlgoGetHeuristic");
  }();
  // The caller cannot act on an error of this call.
  static_cast<void>(api_->preference_destroy(preference));
  COLLOPS_RETURN_IF_ERROR(chosen);
  COLLOPS_CHECK_ARG(found > 0 && choice.choice.state == BlasStatus::kSuccess, ERROR_UNSUPPORTED,
                    "cuBLASLt has no algorithm for a product of ", shape.a.rows, " x ",
                    shape.a.columns, " and ", shape.b.rows, " x ", shape.b.columns, " of ",
                    Name(shape.a.dtype), " into ", Name(shape.c.dtype));
  if (choices_.size() == kMostChoices) choices_.erase(choices_.begin());
  choices_.push_back(choice);
  *algorithm = &choices_.back().choice.algorithm;
  return Ok();
}

Status Matmul::Check(const StreamStep& step) {
  COLLOPS_RETURN_IF_ERROR(Open());
  const Shape shape = ShapeOf(step, false);
  Objects objects(*api_);
  COLLOPS_RETURN_IF_ERROR(objects.Make(shape));
  const MatmulAlgorithm* algorithm = nullptr;
  return Choose(shape, objects, &algorithm);
}

Status Matmul::Run(const StreamStep& step, void* scratch, int64_t bytes, Stream stream) {
  COLLOPS_RETURN_IF_ERROR(Open());
  const Shape shape = ShapeOf(step, true);
  Objects objects(*api_);
  COLLOPS_RETURN_IF_ERROR(objects.Make(shape));
  const MatmulAlgorithm* algorithm = nullptr;
  COLLOPS_RETURN_IF_ERROR(Choose(shape, objects, &algorithm));
  const float one = 1.0F;
  const float zero = 0.0F;
  return ToStatus(*api_,
                  api_->matmul(handle_, objects.desc(), &one, step.b.data, objects.first(),
                               step.a.data, objects.second(), &zero, step.c.data, objects.result(),
                               const_cast<void*>(step.c.data), objects.result(), algorithm, scratch,
                               static_cast<size_t>(bytes), stream),
                  "cublasLtMatmul");
}

void Matmul::Release() {
  if (handle_ != nullptr) free_handles_here.Get().Give(device_, {handle_});
  handle_ = nullptr;
  choices_.clear();
}

}  // namespace collops::cuda
