#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "collops/comm/backends/shm/communicator.h"
#include "collops/comm/backends/ucx/engine/worker.h"
#include "collops/comm/backends/ucx/schedule.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/head_carrier.h"

namespace collops::ucx {

// Carries the heads of hosts over UCX: one small message to each rank that gets them from this one,
// and with it what a collective has attached. The receives are posted ahead, into memory of this
// object: no output is touched before all ranks agree, and what was sent for a refused step is
// dropped with its head. Owned by its Link; one thread at a time.
class Heads : public control::HeadCarrier {
 public:
  // `worker` outlives this object.
  Heads(Worker* worker, const HostMap& hosts, int rank);
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;

  // Before the head of a step is sent: `data`, which stays as it is until the step ends, goes with
  // it; at most kMostHeadBytes, to a rank that this one speaks to. Clear() takes back what was not
  // sent, as the step has ended before.
  void Attach(int to, const void* data, int64_t bytes);
  void Clear();
  // After all ranks have agreed: copies what came with the head. ERROR_RANK_MISMATCH if that are
  // not so many bytes.
  Status CopyTo(void* memory, int from, int64_t bytes) const;

  // Memory for so many ranks that speak to this one, and that it speaks to.
  static int64_t Bytes(int64_t sources, int64_t targets) {
    return sources * int64_t{sizeof(Source)} + targets * int64_t{sizeof(Target)};
  }

  size_t num_sources() const override { return sources_.size(); }
  int source(size_t index) const override { return sources_[index].rank; }
  Status Send(const control::HostHead& head) override;
  bool Sent() override;
  void Progress() override { worker_->Progress(); }
  bool Take(size_t index, control::HostHead* head) override;
  Status LossOf(size_t index) const override;
  void Nap(const control::Doze& doze) override { worker_->Nap(doze); }

 private:
  // Memory of UCX while a request is pending, so that it does not move.
  struct Message {
    control::HostHead head;
    std::byte attached[kMostHeadBytes];
  };
  // With its request.
  struct Posted {
    Message message;
    Request request;
  };
  // The receive of the next head is posted while the attachment of the last one is read.
  struct Source {
    explicit Source(int from) : rank(from) {}
    int rank;
    Posted receives[2];
    int next = 0;
    Status posted;  // of receives[next]
  };
  struct Target {
    explicit Target(int to) : rank(to) {}
    int rank;
    Posted sent;
    const void* data = nullptr;
    size_t bytes = 0;  // of data
  };
  void Post(Source* source);
  static uint64_t TagOf(int source);

  Worker* worker_;
  int rank_;
  std::deque<Source> sources_;
  std::deque<Target> targets_;
};

// What a rank moves bytes with, once the ranks are connected: UCX to the ranks of other hosts, and
// a communicator of backend shm among the ranks of its own host.
struct Link {
  control::Control* control = nullptr;
  HostMap hosts;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<Heads> heads;
  // A worker is for one thread at a time. Messages between two ranks have their own, because a
  // thread may wait for them while another one is in a group call: neither waits for the other, or
  // takes what the other sleeps for.
  std::unique_ptr<Worker> pair_worker;
  // Its ranks are local indices; null if this rank is alone.
  std::shared_ptr<shm::ShmCommunicator> host;
};

// Exchanges UCX addresses over Control and connects to the ranks of other hosts with which this one
// exchanges heads, then creates the communicator of this host. A connection to another rank is made
// by the first message to it. Every rank of the group calls it, inside a call.
Status ConnectLink(const std::shared_ptr<control::Control>& control, std::unique_ptr<Link>* link);

}  // namespace collops::ucx
