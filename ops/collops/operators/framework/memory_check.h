#pragma once

#include <vector>

#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/operators/framework/signature.h"

namespace collops {

// Whether the host may read the counts in place; the checks below refuse counts that cannot be
// read.
inline bool IsReadable(const TensorView& counts) {
  return counts.device.kind == DeviceKind::kCpu && counts.data != nullptr && counts.contiguous &&
         !counts.foreign_endian;
}
Counts ReadCounts(const OpSignature& signature, const std::vector<TensorView>& inputs);
Status CheckHostData(const OpSignature& signature, const std::vector<TensorView>& inputs);

// Checks devices and contiguity, and that outputs overlap no input and no other output. Null
// addresses pass. `device` is the communicator's.
Status CheckMemory(const OpSignature& signature, const VariantPack& pack, const TensorBytes& bytes,
                   const Device& device);

// Checks that every tensor that is not empty has an address.
Status CheckAddresses(const OpSignature& signature, const VariantPack& pack,
                      const TensorBytes& bytes);

}  // namespace collops
