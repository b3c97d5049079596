#pragma once

#include "collops/comm/backends/ucx/schedule/simulation/call_program.h"
#include "collops/comm/backends/ucx/schedule/slice_schedule.h"

namespace collops::ucx {

// ReduceScatterV in which every slice crosses as it is: the host exchanges its slices, the others
// cross, then each rank adds up those of all ranks.
class SliceProgram : public CallProgram {
 public:
  SliceProgram(const HostMap& hosts, const CallToPredict& call)
      : CallProgram(hosts, call), schedule_(hosts_, call_.counts.data(), item_) {}

 private:
  int64_t BytesWithHead(int from, int to) const override;
  bool Add(int rank, State* state) override;
  void ExchangeHost(int rank, State* state);
  int64_t Expected(int rank) const;

  const SliceSchedule schedule_;
};

}  // namespace collops::ucx
