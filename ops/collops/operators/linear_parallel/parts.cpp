#include "collops/operators/linear_parallel/parts.h"

#include <string>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"

namespace collops {
namespace {

Status FindPart(const char* name, const RowGroup& group, int other_index, const LinearRun& run,
                std::shared_ptr<Communicator>* owned, Communicator** part) {
  *part = run.communicator;
  const int size = static_cast<int>(group.ranks.size());
  if (size == run.communicator->size() || size == 1) return Ok();
  std::string grid = name;  // with its type
  for (const char* term : {"type", "agDim", "rsDim", "innerDimIsAg"}) {
    grid += Concat(" ", run.agreement.Value(term));
  }
  COLLOPS_RETURN_IF_ERROR(run.communicator->KeptSplit(grid, other_index, group.ranks, owned));
  *part = owned->get();
  return Ok();
}

}  // namespace

Status FindParts(const LinearRun& run, GridParts* parts) {
  const RowGroup& gather = run.plan.layout.gather;
  const RowGroup& scatter = run.plan.layout.scatter;
  COLLOPS_RETURN_IF_ERROR(
      FindPart("gather", gather, scatter.index, run, &parts->owned_gather, &parts->gather));
  return FindPart("scatter", scatter, gather.index, run, &parts->owned_scatter, &parts->scatter);
}

Status InGroup(const LinearPlan& plan, const std::vector<int>& ranks, const Status& status) {
  if (status.ok() || static_cast<int>(ranks.size()) == plan.rank_size) return status;
  std::string list;
  for (const int rank : ranks) list += Concat(list.empty() ? "" : ", ", rank);
  return Error(status.code(), "LinearParallel: in the group of ranks ", list,
               ", which are numbered from 0 there: ", status.message());
}

Status FailInParts(const LinearRun& run, const Status& status) {
  control::Control& control = ControlOf(*run.communicator);
  return control.Fail(status, control.step_number());
}

}  // namespace collops
