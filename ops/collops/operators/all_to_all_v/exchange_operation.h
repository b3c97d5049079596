#pragma once

#include <cstdint>
#include <vector>

#include "collops/operators/framework/collective_operation.h"

namespace collops {

// One rank's part in an all-to-all, in elements: each list has a number per rank. Owned by the
// plan.
struct ExchangeLists {
  const std::vector<int64_t>& send_counts;
  const std::vector<int64_t>& sdispls;
  const std::vector<int64_t>& recv_counts;
  const std::vector<int64_t>& rdispls;
};

// Base of AllToAllV and AllToAllVV2: output.flat[rdispls[q] : rdispls[q] + recvCounts[q]] = x of
// rank q, flat, from its sdispls[rank] on, for every rank q. The two differ in where the lists come
// from and in the messages of their checks. Otherwise as CollectiveOperation.
class ExchangeOperation : public CollectiveOperation {
 public:
  ExchangeOperation(OpSignature signature, int root);

 protected:
  // The lists of a complete plan.
  virtual ExchangeLists ListsOf(const Plan& plan) const = 0;

  Status CheckSupport(DType dtype) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  const int root_;
};

// An output of `count` elements of x's type: one row, as in ATB.
TensorDesc OneRow(const TensorDesc& x, int64_t count);

}  // namespace collops
