#pragma once

#include <memory>

#include "operators/plain/plain_plan.h"

namespace collops {

// Rows from rank to rank: all_to_allv, and gatherv and scatterv, of which one rank gets or has all.
struct ExchangeSpec {
  const char* method;
  const char* operation;
  RowShape row;  // of one row, as a whole with one row: its first dim is cut
  Rows sends;    // rows for each rank, which lie one after the other in x
  Rows receives;
  int root = 0;
  // The one list that all ranks pass, where there is one: then it says all rows. Without it the
  // ranks compare what each sends with what the other expects.
  Rows sizes;
};

Status PlanExchange(const ExchangeSpec& spec, int rank_size,
                    std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
