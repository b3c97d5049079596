#include "collops/kernels/cuda/compute.h"

#include <mutex>
#include <set>
#include <vector>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/bodies/elementwise.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::cuda {

using kernels::DeviceMatrix;
using kernels::StreamStep;

namespace {

PerProcess<FreeList<Event>> free_events_here;

struct SideStreams {
  std::mutex mutex;
  std::set<Stream> streams;
};
PerProcess<SideStreams> side_streams_here;

// Events between two streams of a call. The last user may be a graph, which lets go in a thread in
// which nothing of CUDA may be called, so events are used again and not destroyed.
class Marks : public kernels::StreamMarks {
 public:
  Marks(const DriverApi& api, int device) : api_(api), device_(device) {}
  ~Marks() override { free_events_here.Get().Give(device_, events_); }

  Status Put(void* stream, int* mark) override {
    Event event = free_events_here.Get().Take(device_);
    if (event == nullptr) {
      COLLOPS_RETURN_IF_ERROR(
          ToStatus(api_, api_.event_create(&event, kEventDisableTiming), "cuEventCreate"));
    }
    *mark = static_cast<int>(events_.size());
    events_.push_back(event);
    return ToStatus(api_, api_.event_record(event, stream), "cuEventRecord");
  }

  Status Wait(void* stream, int mark) override {
    return ToStatus(api_, api_.stream_wait_event(stream, events_[static_cast<size_t>(mark)], 0),
                    "cuStreamWaitEvent");
  }

 private:
  const DriverApi& api_;
  const int device_;
  std::vector<Event> events_;
};

MatrixArgs ArgsOf(const DeviceMatrix& matrix) {
  return {const_cast<void*>(matrix.data), matrix.transposed ? 1 : matrix.ld,
          matrix.transposed ? matrix.ld : 1, matrix.dtype};
}

int64_t BytesOf(const DeviceMatrix& matrix) {
  return matrix.rows * matrix.columns * SizeOf(matrix.dtype);
}

}  // namespace

Status CudaCompute::Available() {
  COLLOPS_RETURN_IF_ERROR(Kernels::Available());
  return matmul_.Available();
}

Status CudaCompute::OnDevice(const std::function<Status()>& work) {
  Status done;
  COLLOPS_RETURN_IF_ERROR(cuda::OnDevice(api_, device_, [&] { done = work(); }));
  return done;
}

Status CudaCompute::ScratchBytes(const StreamStep& step, int64_t* bytes) {
  *bytes = 0;
  if (step.kind != StreamStep::kMultiply) return Ok();
  COLLOPS_RETURN_IF_ERROR(matmul_.Check(step));
  *bytes = Matmul::kScratchBytes;
  return Ok();
}

Status CudaCompute::Run(const StreamStep& step, void* scratch, int64_t bytes, void* stream) {
  if (!kernels_loaded_) COLLOPS_RETURN_IF_ERROR(kernels_.Load());
  kernels_loaded_ = true;
  switch (step.kind) {
    case StreamStep::kMultiply:
      return matmul_.Run(step, scratch, bytes, stream);
    case StreamStep::kConvert:
      return kernels_.Launch(
          ConvertArgs{ArgsOf(step.a), ArgsOf(step.c), step.c.rows, step.c.columns}, BytesOf(step.c),
          stream);
    case StreamStep::kAdd:
      break;
  }
  MatrixArgs added = ArgsOf(step.b);
  if (step.b.rows == 1) added.row_step = 0;
  return kernels_.Launch(
      AddArgs{ArgsOf(step.a), added, ArgsOf(step.c), step.c.rows, step.c.columns}, BytesOf(step.c),
      stream);
}

Status CudaCompute::Prepare(const StreamStep& step, void* scratch, int64_t bytes, void* stream) {
  return matmul_.Prepare(step, scratch, bytes, stream);
}

Status CudaCompute::SetZero(void* data, int64_t bytes, void* stream) {
  return cuda::SetZero(api_, data, bytes, stream);
}

Status CudaCompute::Copy(void* to, const void* from, int64_t bytes, void* stream) {
  return cuda::Copy(api_, to, from, bytes, stream);
}

Status CudaCompute::SideStream(void** stream) {
  if (side_ == nullptr) {
    // Blocks of a collective begin before those of a product, which may fill the GPU: they are few,
    // and peers wait for them.
    int greatest = 0;
    COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.ctx_get_stream_priority_range(nullptr, &greatest),
                                     "cuCtxGetStreamPriorityRange"));
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(api_, api_.stream_create_with_priority(&side_, kStreamNonBlocking, greatest),
                 "cuStreamCreateWithPriority"));
    SideStreams& all = side_streams_here.Get();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.insert(side_);
  }
  *stream = side_;
  return Ok();
}

bool CudaCompute::IsSideStream(Stream stream) {
  SideStreams& all = side_streams_here.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.streams.count(stream) > 0;
}

std::shared_ptr<kernels::StreamMarks> CudaCompute::NewMarks() {
  return std::make_shared<Marks>(api_, device_);
}

void CudaCompute::Release() {
  if (device_ < 0) return;
  const DeviceScope scope(api_, device_);
  {
    SideStreams& all = side_streams_here.Get();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.erase(side_);
  }
  // The caller cannot act on an error of this call.
  if (side_ != nullptr) static_cast<void>(api_.stream_destroy(side_));
  side_ = nullptr;
  matmul_.Release();
}

}  // namespace collops::cuda
