#pragma once

#include <memory>

#include "collops/operators/plain/plain_plan.h"

namespace collops {

// all_gatherv, and all_gather, whose x has the same shape on all ranks.
struct GatherSpec {
  const char* method;
  const char* operation;
  RowShape x;
  Rows sizes;
  int num_tensors = 1;  // tensors of a list that is gathered in one call after the other
  bool one_shape = false;
};

Status PlanGather(const GatherSpec& spec, int rank, int rank_size,
                  std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
