#pragma once

#include <memory>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/operators/linear_parallel/engine.h"

namespace collops {

// The communicators of the group that a rank gathers from and of the group that it scatters to, for
// engines made of collectives. All operations on such a grid share them.
struct GridParts {
  std::shared_ptr<Communicator> owned_gather;
  std::shared_ptr<Communicator> owned_scatter;
  Communicator* gather = nullptr;
  Communicator* scatter = nullptr;
};

// Finds them, or makes them in the first call, which waits for all ranks. A group of all ranks has
// the call's communicator, and one rank alone needs none.
Status FindParts(const LinearRun& run, GridParts* parts);

// An error of a part, in which the ranks have other numbers.
Status InGroup(const LinearPlan& plan, const std::vector<int>& ranks, const Status& status);

// Ends the call of all ranks with an error of this rank's steps; the ranks that wait in one of the
// groups hear of it there.
Status FailInParts(const LinearRun& run, const Status& status);

}  // namespace collops
