#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tensors/dlpack.h"

namespace collops::bindings {

// A DLPack capsule of row-major elements. `use` is destroyed when the consumer lets go, in any
// thread and without the GIL. `versioned`: as from DLPack 1.0 on.
pybind11::object ExportTensor(void* data, dlpack::Device device, dlpack::Type type,
                              const std::vector<int64_t>& shape, std::shared_ptr<void> use,
                              bool versioned);

}  // namespace collops::bindings
