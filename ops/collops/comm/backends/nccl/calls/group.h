#pragma once

#include "collops/comm/backends/nccl/engine.h"
#include "collops/comm/backends/nccl/library/error.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::nccl {

// Calls of NCCL that are put on their streams together, as one kernel where NCCL can.
// ncclGroupStart counts per thread, so a group that was begun is always ended.
template <typename Body>
Status InGroup(const Engine& engine, Body&& body) {
  const Api& api = engine.api();
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.group_start(), "ncclGroupStart"));
  const Status status = body();
  const Status ended = engine.Taken(api.group_end(), "ncclGroupEnd");
  return status.ok() ? ended : status;
}

// A message of `bytes` bytes to or from `peer`, in a group; nothing if it has none.
inline Status Send(const Engine& engine, const void* data, int64_t bytes, int peer, Stream stream) {
  if (bytes == 0) return Ok();
  const Api& api = engine.api();
  return ToStatus(
      api, api.send(data, static_cast<size_t>(bytes), DataType::kInt8, peer, engine.comm(), stream),
      "ncclSend");
}
inline Status Receive(const Engine& engine, void* data, int64_t bytes, int peer, Stream stream) {
  if (bytes == 0) return Ok();
  const Api& api = engine.api();
  return ToStatus(
      api, api.recv(data, static_cast<size_t>(bytes), DataType::kInt8, peer, engine.comm(), stream),
      "ncclRecv");
}

inline std::byte* ByteAt(void* data, int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * SizeOf(dtype);
}
inline const std::byte* ByteAt(const void* data, int64_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + element * SizeOf(dtype);
}

// Zeros for the elements that no block of a call covers.
template <typename Call>
Status ZeroGaps(const Engine& engine, const Call& call) {
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    const Range& gap = call.gaps[i];
    COLLOPS_RETURN_IF_ERROR(cuda::SetZero(engine.driver(),
                                          ByteAt(call.output, gap.begin, call.dtype),
                                          (gap.end - gap.begin) * SizeOf(call.dtype), call.stream));
  }
  return Ok();
}

}  // namespace collops::nccl
