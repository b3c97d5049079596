#pragma once

#include <memory>

#include "operators/plain/plain_plan.h"

namespace collops {

// A reduction of which each rank gets its rows: reduce_scatterv, reduce_scatter, whose ranks get
// equally many, and reduce, whose root gets all of them.
struct ScatterSpec {
  enum Share { kSizes, kEqual, kRoot };

  const char* method;
  const char* operation;
  RowShape x;
  Rows sizes;  // of kSizes; none: as numpy.array_split shares the rows out
  Share share = kSizes;
  int root = 0;  // of kRoot
  ReduceOp op = ReduceOp::kSum;
};

Status PlanScatter(const ScatterSpec& spec, int rank_size, std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
