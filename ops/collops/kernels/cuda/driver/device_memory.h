#pragma once

#include <cstdint>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver/api.h"

namespace collops::cuda {

inline DevicePointer AddressOf(const void* data) {
  return reinterpret_cast<DevicePointer>(data);
}

// Puts a copy inside one device, or zeros, on the stream; nothing for no bytes.
Status Copy(const DriverApi& api, void* to, const void* from, int64_t bytes, Stream stream);
Status SetZero(const DriverApi& api, void* data, int64_t bytes, Stream stream);

}  // namespace collops::cuda
