#include "streams/cuda_stream.h"

#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::bindings {
namespace {

using cuda::DriverApi;
using cuda::ToStatus;

// Makes a call while the device's context is current.
template <typename Call>
Status OnDevice(int device, const Call& call) {
  const DriverApi* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(cuda::LoadDriver(&api));
  const cuda::DeviceScope scope(*api, device);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  return call(*api);
}

}  // namespace

Status CudaStream::Create(int device, std::unique_ptr<CudaStream>* stream) {
  return OnDevice(device, [&](const DriverApi& api) {
    cuda::Stream made = nullptr;
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(api, api.stream_create(&made, cuda::kStreamNonBlocking), "cuStreamCreate"));
    stream->reset(new CudaStream(device, made));
    return Ok();
  });
}

CudaStream::~CudaStream() {
  static_cast<void>(OnDevice(device_, [this](const DriverApi& api) {
    return ToStatus(api, api.stream_destroy(handle_), "cuStreamDestroy");
  }));
}

Status CudaStream::Synchronize() const {
  return OnDevice(device_, [this](const DriverApi& api) {
    return ToStatus(api, api.stream_synchronize(handle_), "cuStreamSynchronize");
  });
}

Status CudaStream::Copy(uint64_t to, uint64_t from, int64_t bytes) const {
  return OnDevice(device_, [&](const DriverApi& api) {
    return ToStatus(api, api.memcpy_async(to, from, static_cast<size_t>(bytes), handle_),
                    "cuMemcpyAsync");
  });
}

Status CudaStream::BeginCapture() const {
  return OnDevice(device_, [this](const DriverApi& api) {
    // Other threads may allocate meanwhile.
    return ToStatus(api, api.stream_begin_capture(handle_, cuda::CaptureMode::kThreadLocal),
                    "cuStreamBeginCapture");
  });
}

Status CudaStream::EndCapture(std::unique_ptr<CudaGraph>* graph) const {
  return OnDevice(device_, [&](const DriverApi& api) {
    cuda::Graph captured = nullptr;
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(api, api.stream_end_capture(handle_, &captured), "cuStreamEndCapture"));
    return CudaGraph::Create(device_, captured, graph);
  });
}

Status CudaEvent::Create(int device, std::unique_ptr<CudaEvent>* event) {
  return OnDevice(device, [&](const DriverApi& api) {
    cuda::Event made = nullptr;
    COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.event_create(&made, 0), "cuEventCreate"));
    event->reset(new CudaEvent(device, made));
    return Ok();
  });
}

CudaEvent::~CudaEvent() {
  static_cast<void>(OnDevice(device_, [this](const DriverApi& api) {
    return ToStatus(api, api.event_destroy(handle_), "cuEventDestroy");
  }));
}

Status CudaEvent::Record(const CudaStream& stream) const {
  return OnDevice(device_, [&](const DriverApi& api) {
    return ToStatus(api, api.event_record(handle_, stream.handle()), "cuEventRecord");
  });
}

Status CudaEvent::ElapsedMs(const CudaEvent& begin, float* milliseconds) const {
  return OnDevice(device_, [&](const DriverApi& api) {
    return ToStatus(api, api.event_elapsed_time(milliseconds, begin.handle_, handle_),
                    "cuEventElapsedTime");
  });
}

Status CudaGraph::Create(int device, cuda::Graph captured, std::unique_ptr<CudaGraph>* graph) {
  return OnDevice(device, [&](const DriverApi& api) {
    cuda::GraphExec made = nullptr;
    Status status =
        ToStatus(api, api.graph_instantiate(&made, captured, 0), "cuGraphInstantiateWithFlags");
    static_cast<void>(api.graph_destroy(captured));
    if (status.ok()) graph->reset(new CudaGraph(device, made));
    return status;
  });
}

CudaGraph::~CudaGraph() {
  static_cast<void>(OnDevice(device_, [this](const DriverApi& api) {
    return ToStatus(api, api.graph_exec_destroy(handle_), "cuGraphExecDestroy");
  }));
}

Status CudaGraph::Launch(const CudaStream& stream) const {
  return OnDevice(device_, [&](const DriverApi& api) {
    return ToStatus(api, api.graph_launch(handle_, stream.handle()), "cuGraphLaunch");
  });
}

}  // namespace collops::bindings
