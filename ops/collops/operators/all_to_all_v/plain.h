#pragma once

#include <memory>

#include "collops/operators/plain/plain_plan.h"

namespace collops {

// all_to_allv; also gatherv and scatterv, in which one rank receives or sends all rows.
struct ExchangeSpec {
  // kEach: each pair of ranks compares the rows sent with the rows expected.
  enum Share { kEach, kToRoot, kFromRoot };

  const char* method;
  const char* operation;
  RowShape x;  // its first dim is cut into rows
  Rows sends;  // of kEach: rows for each rank, and from each
  Rows receives;
  Rows sizes;  // else: the list that all ranks pass
  Share share = kEach;
  int64_t root = 0;
};

Status PlanExchange(const ExchangeSpec& spec, int rank, int rank_size,
                    std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
