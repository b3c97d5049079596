#pragma once

#include <memory>
#include <optional>

#include "collops/operators/plain/plain_plan.h"

namespace collops {

// A reduction of which each rank gets its rows: reduce_scatterv, reduce_scatter (all ranks get the
// same number of rows), and reduce (the root gets all rows).
struct ScatterSpec {
  enum Share { kSizes, kEqual, kRoot };

  const char* method;
  const char* operation;
  RowShape x;
  std::optional<Rows> sizes;  // for kSizes; none: shared out as numpy.array_split does
  Share share = kSizes;
  int64_t root = 0;  // for kRoot
  ReduceOp op = ReduceOp::kSum;
};

Status PlanScatter(const ScatterSpec& spec, int rank_size, std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
