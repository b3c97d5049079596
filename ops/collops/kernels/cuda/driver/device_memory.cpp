#include "collops/kernels/cuda/driver/device_memory.h"

#include "collops/kernels/cuda/driver/error.h"

namespace collops::cuda {

Status Copy(const DriverApi& api, void* to, const void* from, int64_t bytes, Stream stream) {
  if (bytes == 0 || to == from) return Ok();
  return ToStatus(
      api, api.memcpy_async(AddressOf(to), AddressOf(from), static_cast<size_t>(bytes), stream),
      "cuMemcpyAsync");
}

Status SetZero(const DriverApi& api, void* data, int64_t bytes, Stream stream) {
  if (bytes == 0) return Ok();
  return ToStatus(api, api.memset_d8_async(AddressOf(data), 0, static_cast<size_t>(bytes), stream),
                  "cuMemsetD8Async");
}

}  // namespace collops::cuda
