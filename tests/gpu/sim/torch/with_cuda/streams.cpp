// Streams, events, graphs and launches of the runtime.

#include "torch/with_cuda/runtime.h"

using namespace cudart_on_sim;
using collops::cuda::CaptureMode;
using collops::cuda::CaptureStatus;
using collops::cuda::Result;
using collops_sim::kSimulated;

namespace {

void** Handle(void* made) {
  return static_cast<void**>(made);
}

// torch's own kernels have no code for a simulated GPU.
cudaError_t NoKernel() {
  return Kept(Result::kNoBinaryForGpu);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return InContext([=] { return kSimulated.stream_create(Handle(stream), 0); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return InContext(
      [=] { return kSimulated.stream_create_with_priority(Handle(stream), flags, priority); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return InContext([=] { return kSimulated.stream_destroy(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return InContext([=] { return kSimulated.stream_synchronize(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return InContext([=] { return cuStreamQuery(stream); });
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return InContext([=] { return kSimulated.stream_wait_event(stream, event, flags); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  return InContext([=] { return cuLaunchHostFunc(stream, function, user_data); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return InContext([=] { return kSimulated.event_create(Handle(event), flags); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return InContext([=] { return kSimulated.event_destroy(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return InContext([=] { return kSimulated.event_record(event, stream); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return InContext([=] { return kSimulated.event_query(event); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return InContext([=] { return cuEventSynchronize(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return InContext([=] { return kSimulated.event_elapsed_time(milliseconds, begin, end); });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return InContext(
      [=] { return kSimulated.exchange_capture_mode(reinterpret_cast<CaptureMode*>(mode)); });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return InContext([=] {
    return kSimulated.stream_is_capturing(stream, reinterpret_cast<CaptureStatus*>(status));
  });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return InContext([=] { return kSimulated.stream_begin_capture(stream, CaptureMode(mode)); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return InContext([=] { return kSimulated.stream_end_capture(stream, Handle(graph)); });
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData**,
                                     size_t* num_nodes) {
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, size_t* num_nodes) {
#endif
  return InContext([=] {
    return kSimulated.stream_get_capture_info(
        stream, reinterpret_cast<CaptureStatus*>(status), reinterpret_cast<uint64_t*>(id),
        Handle(graph), reinterpret_cast<const collops::cuda::GraphNode**>(nodes), num_nodes);
  });
}

// torch asks only whether there are any.
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* num_nodes) {
  *num_nodes = 1;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return InContext([=] { return kSimulated.graph_instantiate(Handle(executable), graph, flags); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return InContext([=] { return kSimulated.graph_launch(executable, stream); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return InContext([=] { return kSimulated.graph_exec_destroy(executable); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return InContext([=] { return kSimulated.graph_destroy(graph); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  return NoKernel();
}
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return NoKernel();
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return NoKernel();
}

}  // extern "C"
