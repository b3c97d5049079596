#pragma once

#include <map>
#include <utility>
#include <vector>

#include "collops/comm/backends/ucx/reduction/reduction_plan.h"
#include "collops/comm/backends/ucx/schedule/simulation/call_program.h"

namespace collops::ucx {

// ReduceScatterV by plans: the host's ranks share slices, then each makes its stages, chunk by
// chunk, as their sources come.
class StageProgram : public CallProgram {
 public:
  // `plans`: by owner, not empty.
  StageProgram(const HostMap& hosts, const CallToPredict& call,
               const std::vector<ReductionPlan>& plans);

 private:
  // One chunk of one stage.
  struct Task {
    int worker = 0;
    int consumer = -1;  // the task that takes the result
    int missing = 0;    // results of others that have not come
    int64_t bytes = 0;  // that cross
    int64_t read_bytes = 0;
  };
  int64_t BytesWithHead(int, int) const override { return 0; }
  bool Add(int rank, State* state) override;
  void TaskArrived(int rank, int task) override;
  void AddPlan(int owner, const ReductionPlan& plan);

  const ReductionElements elements_;
  std::vector<Task> tasks_;
  std::map<std::pair<int, int>, int64_t> pair_bytes_;  // from a rank to another
  std::vector<std::vector<int>> ready_;                // by rank; the next one is the last
  std::vector<int64_t> unfinished_;                    // by rank
  std::vector<int64_t> shared_bytes_;                  // that a rank copies for its host, by rank
};

}  // namespace collops::ucx
