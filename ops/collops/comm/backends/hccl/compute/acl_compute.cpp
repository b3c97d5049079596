#include "collops/comm/backends/hccl/compute/acl_compute.h"

#include <algorithm>
#include <vector>

#include "collops/comm/backends/hccl/calls/device_memory.h"
#include "collops/comm/backends/hccl/library/acl_runtime.h"
#include "collops/comm/backends/hccl/library/device_scope.h"
#include "collops/comm/backends/hccl/library/error.h"

namespace collops::hccl {

using kernels::DeviceMatrix;
using kernels::StreamStep;

namespace {

constexpr size_t kStandInBytes = 512;

// Events between two streams of a call. The runtime wants an event to live until the streams that
// wait for it are past it.
class Marks : public kernels::StreamMarks {
 public:
  Marks(const Api& api, int device) : api_(api), device_(device) {}
  // The caller cannot act on an error of these calls.
  ~Marks() override {
    const DeviceScope scope(api_, device_);
    for (const Event event : events_) static_cast<void>(api_.destroy_event(event));
  }

  Status Order(void* first, void* then) override {
    int mark = 0;
    COLLOPS_RETURN_IF_ERROR(Put(first, &mark));
    return Wait(then, mark);
  }

  Status Put(void* stream, int* mark) override {
    const DeviceScope scope(api_, device_);
    COLLOPS_RETURN_IF_ERROR(scope.status());
    Event event = nullptr;
    COLLOPS_RETURN_IF_ERROR(CreateEvent(api_, &event));
    *mark = static_cast<int>(events_.size());
    events_.push_back(event);
    return ToStatus(api_, api_.record_event(event, stream), "aclrtRecordEvent");
  }

  Status Wait(void* stream, int mark) override {
    const DeviceScope scope(api_, device_);
    COLLOPS_RETURN_IF_ERROR(scope.status());
    return ToStatus(api_, api_.stream_wait_event(stream, events_[static_cast<size_t>(mark)]),
                    "aclrtStreamWaitEvent");
  }

 private:
  const Api& api_;
  const int device_;
  std::vector<Event> events_;
};

}  // namespace

// One operator of aclnn after its first phase. The tensors may go once the second phase has begun.
class AclCompute::Prepared {
 public:
  explicit Prepared(const Aclnn& aclnn) : aclnn_(aclnn) {}
  ~Prepared() {
    for (const AclTensor tensor : tensors_) static_cast<void>(aclnn_.destroy_tensor(tensor));
    if (one_ != nullptr) static_cast<void>(aclnn_.destroy_scalar(one_));
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  // `stand_in`: the address of every matrix, or null for their own.
  AclnnStatus First(const StreamStep& step, void* stand_in) {
    const AclTensor a = Add(step.a, stand_in);
    const AclTensor c = Add(step.c, stand_in);
    switch (step.kind) {
      case StreamStep::kMultiply:
        second_ = aclnn_.matmul;
        return aclnn_.matmul_size(a, Add(step.b, stand_in), c, kKeepType, &bytes_, &executor_);
      case StreamStep::kConvert:
        second_ = aclnn_.cast;
        return aclnn_.cast_size(a, static_cast<int32_t>(step.c.dtype), c, &bytes_, &executor_);
      case StreamStep::kAddRow:
        break;
    }
    second_ = aclnn_.add;
    float alpha = 1.0F;
    one_ = aclnn_.create_scalar(&alpha, static_cast<int32_t>(DType::kFloat32));
    return aclnn_.add_size(a, Add(step.b, stand_in), one_, c, &bytes_, &executor_);
  }

  uint64_t bytes() const { return bytes_; }
  AclnnStatus Second(void* scratch, Stream stream) const {
    return second_(bytes_ == 0 ? nullptr : scratch, bytes_, executor_, stream);
  }

 private:
  AclTensor Add(const DeviceMatrix& matrix, void* stand_in) {
    const int64_t dims[] = {matrix.rows, matrix.columns};
    const int64_t strides[] = {matrix.transposed ? 1 : matrix.ld,
                               matrix.transposed ? matrix.ld : 1};
    const int64_t extent = 1 + (matrix.rows - 1) * strides[0] + (matrix.columns - 1) * strides[1];
    void* const data = stand_in != nullptr ? stand_in : const_cast<void*>(matrix.data);
    tensors_.push_back(aclnn_.create_tensor(dims, 2, static_cast<int32_t>(matrix.dtype), strides, 0,
                                            kFormatNd, &extent, 1, data));
    return tensors_.back();
  }

  const Aclnn& aclnn_;
  std::vector<AclTensor> tensors_;
  AclScalar one_ = nullptr;
  AclExecutor executor_ = nullptr;
  uint64_t bytes_ = 0;
  AclnnStatus (*second_)(void*, uint64_t, AclExecutor, Stream) = nullptr;
};

namespace {

const char* Name(StreamStep::Kind kind) {
  switch (kind) {
    case StreamStep::kMultiply:
      return "aclnnMatmul";
    case StreamStep::kConvert:
      return "aclnnCast";
    case StreamStep::kAddRow:
      return "aclnnAdd";
  }
  return "";
}

Status InAclnn(const Api& api, AclnnStatus status, StreamStep::Kind kind) {
  if (status == kAclnnInvalid) {
    const Status said = ToStatus(api, AclError{status}, Name(kind));
    return Error(ERROR_UNSUPPORTED, said.message());
  }
  return ToStatus(api, AclError{status}, Name(kind));
}

}  // namespace

void AclCompute::Release() {
  if (side_ == nullptr && stand_in_ == nullptr) return;
  const DeviceScope scope(api_, device_);
  // The caller cannot act on an error of these calls.
  if (side_ != nullptr) static_cast<void>(api_.destroy_stream(side_));
  if (stand_in_ != nullptr) static_cast<void>(api_.free(stand_in_));
  side_ = nullptr;
  stand_in_ = nullptr;
}

Status AclCompute::Available() {
  return LoadAclnn(&aclnn_);
}

Status AclCompute::ScratchBytes(const StreamStep& step, int64_t* bytes) {
  COLLOPS_RETURN_IF_ERROR(Available());
  const DeviceScope scope(api_, device_);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  if (stand_in_ == nullptr) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(
        api_, api_.malloc(&stand_in_, kStandInBytes, AllocationPolicy::kHugeFirst), "aclrtMalloc"));
  }
  Prepared prepared(*aclnn_);
  COLLOPS_RETURN_IF_ERROR(InAclnn(api_, prepared.First(step, stand_in_), step.kind));
  *bytes = static_cast<int64_t>(prepared.bytes());
  return Ok();
}

Status AclCompute::Run(const StreamStep& step, void* scratch, int64_t bytes, void* stream) {
  const DeviceScope scope(api_, device_);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  Prepared prepared(*aclnn_);
  COLLOPS_RETURN_IF_ERROR(InAclnn(api_, prepared.First(step, nullptr), step.kind));
  COLLOPS_CHECK_ARG(prepared.bytes() <= static_cast<uint64_t>(bytes), ERROR_RT_FAIL,
                    Name(step.kind), " asks for ", prepared.bytes(),
                    " bytes of workspace, but asked for ", bytes, " when the call was planned");
  return InAclnn(api_, prepared.Second(scratch, stream), step.kind);
}

Status AclCompute::SetZero(void* data, int64_t bytes, void* stream) {
  const DeviceScope scope(api_, device_);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  return Zero(api_, data, {0, bytes}, DType::kInt8, stream);
}

Status AclCompute::Copy(void* to, const void* from, int64_t bytes, void* stream) {
  const DeviceScope scope(api_, device_);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  return hccl::Copy(api_, to, from, bytes, stream);
}

Status AclCompute::SideStream(void** stream) {
  if (side_ == nullptr) {
    const DeviceScope scope(api_, device_);
    COLLOPS_RETURN_IF_ERROR(scope.status());
    COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.create_stream(&side_), "aclrtCreateStream"));
  }
  *stream = side_;
  return Ok();
}

std::shared_ptr<kernels::StreamMarks> AclCompute::NewMarks() {
  return std::make_shared<Marks>(api_, device_);
}

}  // namespace collops::hccl
