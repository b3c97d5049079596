#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/call.h"
#include "collops/core/status.h"
#include "collops/kernels/device_runtime.h"
#include "collops/kernels/stream_compute.h"

namespace collops::hccl {

// Makes an NPU the thread's current device while it lives: HCCL and the runtime use the current
// device, which the caller may have changed. A thread that had none keeps this one, because the
// runtime cannot unset it.
class DeviceScope {
 public:
  DeviceScope(const Api& api, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  // Ok, or why the NPU could not be set.
  const Status& status() const { return status_; }

 private:
  const Api& api_;
  int32_t before_ = -1;  // the device to restore; -1: none
  Status status_;
};

// The address of an element of device memory.
void* ElementAt(void* data, int64_t element, DType dtype);

// A little device memory that no call reads or writes, where CANN takes no null.
Status AllocateStandIn(const Api& api, void** stand_in);

// Sets the elements [range.begin, range.end) of device memory to zero, on the stream.
Status Zero(const Api& api, void* data, const Range& range, DType dtype, Stream stream);

// Copies device memory on the stream; nothing if it is the same memory or there are no bytes.
Status Copy(const Api& api, void* to, const void* from, int64_t bytes, Stream stream);

// An event that may be recorded again where the library has such.
Status CreateEvent(const Api& api, Event* event);

// Events and captured graphs of the ACL runtime. With a library that has no graphs, no stream is
// ever captured. Owned by an Engine; threads as in DeviceRuntime, but any thread may destroy a
// graph.
class AclRuntime : public kernels::DeviceRuntime {
 public:
  explicit AclRuntime(const Api& api) : api_(api) {}

  Status CreateEvent(Event* event) override;
  Status RecordEvent(Event event, Stream stream) override;
  Progress QueryEvent(Event event) override;
  void DestroyEvent(Event event) override;
  Status FindGraph(Stream stream, Graph* graph) override;
  void KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) override;

 private:
  const Api& api_;
};

// CANN's operators, declared here from aclnn's documents. Each is called in two phases: the first
// returns an executor, which is used once, and the bytes of workspace of the second.

using AclTensor = void*;
using AclScalar = void*;
using AclExecutor = void*;
using AclnnStatus = int32_t;                   // 0 is success
constexpr AclnnStatus kAclnnInvalid = 161002;  // the shapes or types are not supported

// aclDataType has collops' numbers (core/dtype.h). aclFormat:
constexpr int32_t kFormatNd = 2;
// cubeMathType: float32 is multiplied as float32.
constexpr int8_t kKeepType = 0;

struct Aclnn {
  AclTensor (*create_tensor)(const int64_t* dims, uint64_t num_dims, int32_t type,
                             const int64_t* strides, int64_t offset, int32_t format,
                             const int64_t* storage_dims, uint64_t num_storage_dims, void* data);
  AclnnStatus (*destroy_tensor)(AclTensor tensor);
  AclScalar (*create_scalar)(void* value, int32_t type);
  AclnnStatus (*destroy_scalar)(AclScalar scalar);

  AclnnStatus (*matmul_size)(AclTensor self, AclTensor mat2, AclTensor out, int8_t cube_math_type,
                             uint64_t* bytes, AclExecutor* executor);
  AclnnStatus (*matmul)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  AclnnStatus (*cast_size)(AclTensor self, int32_t type, AclTensor out, uint64_t* bytes,
                           AclExecutor* executor);
  AclnnStatus (*cast)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  AclnnStatus (*add_size)(AclTensor self, AclTensor other, AclScalar alpha, AclTensor out,
                          uint64_t* bytes, AclExecutor* executor);
  AclnnStatus (*add)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
};

// Opens libnnopbase.so and libopapi.so once per process, and leaves them open. ERROR_UNSUPPORTED
// with the loader's message if that fails.
Status LoadAclnn(const Aclnn** aclnn);

// Products and sums of an NPU, by aclnn. Owned by the communicator of that NPU, which every call
// makes the thread's current device.
class AclCompute : public kernels::StreamCompute {
 public:
  // `device` changes once, from -1 to the NPU's number.
  AclCompute(const Api& api, const std::atomic<int>& device) : api_(api), device_(device) {}
  AclCompute(const AclCompute&) = delete;
  AclCompute& operator=(const AclCompute&) = delete;

  Status Available() override;
  Status OnDevice(const std::function<Status()>& work) override;
  int64_t alignment() const override { return kAlignment; }
  Status ScratchBytes(const kernels::StreamStep& step, int64_t* bytes) override;
  Status Run(const kernels::StreamStep& step, void* scratch, int64_t bytes, void* stream) override;
  Status SetZero(void* data, int64_t bytes, void* stream) override;
  Status Copy(void* to, const void* from, int64_t bytes, void* stream) override;
  Status SideStream(void** stream) override;
  std::shared_ptr<kernels::StreamMarks> NewMarks() override;

  // Destroys the side stream and gives memory back. The calls are past.
  void Release() override;

 private:
  // What aclnn's workspaces and its operators' tensors are aligned to.
  static constexpr int64_t kAlignment = 512;

  class Prepared;

  const Api& api_;
  const std::atomic<int>& device_;
  const Aclnn* aclnn_ = nullptr;
  void* stand_in_ = nullptr;  // whose address is passed for any matrix where sizes are asked for
  Stream side_ = nullptr;     // never destroyed if its work may not be past
};

}  // namespace collops::hccl
