#pragma once

#include "collops/comm/backends/ucx/schedule/gather_schedule.h"
#include "collops/comm/backends/ucx/schedule/simulation/call_program.h"

namespace collops::ucx {

// AllGatherV: the host shares its blocks, then pieces cross, then the host shares each block of
// other hosts, in a meeting of its own.
class GatherProgram : public CallProgram {
 public:
  GatherProgram(const HostMap& hosts, const CallToPredict& call);

 private:
  int64_t BytesWithHead(int from, int to) const override;
  bool Add(int rank, State* state) override;
  void ShareOwn(int rank, State* state);
  void Share(int rank, State* state);
  int64_t Expected(int rank) const;

  const GatherSchedule schedule_;
  std::vector<int64_t> expected_;  // messages without heads, by rank
};

}  // namespace collops::ucx
