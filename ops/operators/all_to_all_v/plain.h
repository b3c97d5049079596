#pragma once

#include <memory>

#include "operators/plain/plain_plan.h"

namespace collops {

// all_to_allv; also gatherv and scatterv, in which one rank receives or sends all rows.
struct ExchangeSpec {
  const char* method;
  const char* operation;
  RowShape row;  // of x if it had one row: the first dim is cut into rows
  Rows sends;    // rows for each rank, contiguous in x
  Rows receives;
  int root = 0;
  // The list that all ranks pass, if there is one; it then determines all rows. Without it each
  // pair of ranks compares the rows sent with the rows expected.
  Rows sizes;
};

Status PlanExchange(const ExchangeSpec& spec, int rank_size,
                    std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
