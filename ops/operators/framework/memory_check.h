#pragma once

#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "operators/framework/signature.h"

namespace collops {

// Whether the host may read the counts in place; what cannot be read is refused by the checks
// below.
bool IsReadable(const TensorView& counts);
Counts ReadCounts(const Signature& signature, const std::vector<TensorView>& inputs);
Status CheckHostData(const Signature& signature, const std::vector<TensorView>& inputs);

// Where the tensors lie: devices, layouts, outputs apart from every input and each other. Null
// addresses pass. `device` is the communicator's.
Status CheckMemory(const Signature& signature, const VariantPack& pack, const TensorBytes& bytes,
                   const Device& device);

// Every tensor that is not empty has an address.
Status CheckAddresses(const Signature& signature, const VariantPack& pack,
                      const TensorBytes& bytes);

}  // namespace collops
