#pragma once

#include <deque>
#include <vector>

#include "comm/backends/ucx/engine/worker.h"
#include "comm/backends/ucx/host_map.h"
#include "comm/control/head_carrier.h"

namespace collops::ucx {

// Carries the heads of hosts over UCX: one small message to each rank that gets them from this one.
// The receives are posted ahead. Owned by its Link; one thread at a time.
class Heads : public control::HeadCarrier {
 public:
  // `worker`, which outlives this object, is connected to all ranks of other hosts.
  Heads(Worker* worker, const HostMap& hosts, int rank);
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;

  size_t num_sources() const override { return sources_.size(); }
  int source(size_t index) const override { return sources_[index].rank; }
  Status Send(const control::HostHead& head) override;
  bool Sent() override;
  void Progress() override { worker_->Progress(); }
  bool Take(size_t index, control::HostHead* head) override;
  Status LossOf(size_t index) const override;
  void Nap(int most_ms) override { worker_->Nap(most_ms); }

 private:
  // Memory of UCX while a request is pending, so neither moves.
  struct Source {
    explicit Source(int from) : rank(from) {}
    int rank;
    control::HostHead head;
    Request request;
    Status posted;  // of the receive
  };
  struct Target {
    explicit Target(int to) : rank(to) {}
    int rank;
    Request request;
  };
  void Post(Source* source);
  static uint64_t TagOf(int source);

  Worker* worker_;
  int rank_;
  control::HostHead sent_;
  std::deque<Source> sources_;
  std::deque<Target> targets_;
};

}  // namespace collops::ucx
