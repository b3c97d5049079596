#pragma once

#include <cstdint>
#include <memory>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::bindings {

// Streams, timed events and captured graphs of CUDA's driver, for programs that have no other
// library of CUDA's, as `collops bench`. `device` counts as cuDeviceGet does. The functions that
// wait are called without the GIL.

class CudaGraph;

// A stream that waits for no other one.
class CudaStream {
 public:
  static Status Create(int device, std::unique_ptr<CudaStream>* stream);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  int device() const { return device_; }
  cuda::Stream handle() const { return handle_; }

  Status Synchronize() const;
  Status Copy(uint64_t to, uint64_t from, int64_t bytes) const;
  // What is put on the stream goes into the graph instead, from BeginCapture to EndCapture.
  Status BeginCapture() const;
  Status EndCapture(std::unique_ptr<CudaGraph>* graph) const;

 private:
  CudaStream(int device, cuda::Stream handle) : device_(device), handle_(handle) {}

  const int device_;
  const cuda::Stream handle_;
};

// An event that tells when a stream has come to it.
class CudaEvent {
 public:
  static Status Create(int device, std::unique_ptr<CudaEvent>* event);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Status Record(const CudaStream& stream) const;
  // Both events have happened.
  Status ElapsedMs(const CudaEvent& begin, float* milliseconds) const;

 private:
  CudaEvent(int device, cuda::Event handle) : device_(device), handle_(handle) {}

  const int device_;
  const cuda::Event handle_;
};

// Captured calls, instantiated.
class CudaGraph {
 public:
  // Takes the captured graph.
  static Status Create(int device, cuda::Graph captured, std::unique_ptr<CudaGraph>* graph);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  Status Launch(const CudaStream& stream) const;

 private:
  CudaGraph(int device, cuda::GraphExec handle) : device_(device), handle_(handle) {}

  const int device_;
  const cuda::GraphExec handle_;
};

}  // namespace collops::bindings
