#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/backends/ucx/engine/chunks.h"
#include "collops/comm/backends/ucx/engine/worker.h"
#include "collops/comm/backends/ucx/link.h"
#include "collops/comm/backends/ucx/schedule.h"
#include "collops/comm/call.h"
#include "collops/comm/control/step.h"
#include "collops/comm/user_calls.h"
#include "collops/core/deadline.h"

namespace collops::ucx {

// The streams of one call between this rank and ranks of other hosts. A stream is named by sender,
// receiver and a number that both know. Owned by its call; one thread. Waits in Until() and
// Finish(), until the call's time-out.
class Streams {
 public:
  // `name`: of the call, for messages. `rank`: this rank's. `timeout_s`: of each wait.
  Streams(const char* name, Worker* worker, control::Step* step, int rank, double timeout_s)
      : name_(name), worker_(worker), step_(step), rank_(rank), timeout_s_(timeout_s) {}
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Sends `bytes` of `data` to rank `to`; nothing is sent of no bytes. `chunk_bytes`: the same on
  // both sides.
  void Send(int to, int number, const void* data, int64_t bytes,
            int64_t chunk_bytes = kStreamChunkBytes);
  // As Send(), from a ring of kStreamSlots chunks, of which none is ready yet.
  OutgoingChunks* SendRing(int to, int number, const void* ring, int64_t bytes,
                           int64_t chunk_bytes);
  // Receives them from rank `from`, one after the other or into a ring of `slots` chunks.
  IncomingChunks* Receive(int from, int number, void* data, int64_t bytes, int64_t slots = 0,
                          int64_t chunk_bytes = kStreamChunkBytes);

  // Moves the streams until `ready` returns true.
  template <typename Ready>
  Status Until(Ready&& ready) {
    Status moved;
    const auto done = [&] {
      moved = Advance();
      return !moved.ok() || ready();
    };
    Status looked;
    const Deadline deadline = Deadline::After(timeout_s_);
    const Watch watch = {{}, [&] { return looked = Look(); }, nap_s_, &step_->duties()};
    const Status waited = worker_->Until(name_, done, watch, deadline);
    if (!moved.ok()) return Explain(moved);
    // The look may have found a time-out of another wait, which says more.
    return waited.code() == ERROR_TIMEOUT && looked.ok() ? TimedOut() : waited;
  }
  // Moves the streams until all are done.
  Status Finish();
  // Waits look around after this time at the latest: for something that does not come over UCX.
  void set_nap_s(double nap_s) { nap_s_ = nap_s; }

 private:
  OutgoingChunks* Emplace(int to, int number, const void* data, int64_t slots,
                          const Chunking& chunking);
  Tag TagFrom(int source, int number) const;
  Status Advance();
  // What ends the call: a failure of the group, or the loss of a rank whose stream is not done.
  Status Look();
  Status Loss() const;
  // For a stream that failed: what the group says of it meanwhile, or who is lost; else `failed`.
  Status Explain(const Status& failed) const;
  // The error of a time-out: the rank of another host that this one waits for, or else who is late.
  Status TimedOut() const;
  // The error that another rank, or abort(), has ended the group with; Ok if there is none.
  Status GroupFailure() const { return step_->endpoint().GroupFailure(step_->number()); }
  Status CheckPeer(int peer) const;
  bool Done() const;

  const char* name_;
  Worker* worker_;
  control::Step* step_;
  int rank_;
  double timeout_s_;
  // Messages that another thread of this rank begins meanwhile do not end a sleep.
  double nap_s_ = control::kMostSleepMs * 1e-3;
  // Streams do not move in memory: UCX has pointers into them.
  std::list<OutgoingChunks> outgoing_;
  std::list<IncomingChunks> incoming_;
  std::optional<Deadline> explained_;
};

// One call of a group on several hosts: all bytes between hosts go through UCX; a host's ranks
// share them over shared memory. The call must outlive it, since UCX may have addresses of both.
class CrossHostCall {
 public:
  virtual ~CrossHostCall() = default;
  CrossHostCall(const CrossHostCall&) = delete;
  CrossHostCall& operator=(const CrossHostCall&) = delete;

  // Before the step begins: the memory that the call needs. Local; after an error the call can
  // still be refused.
  virtual Status Prepare() { return Ok(); }
  // Before the agreement: small parts of this rank's input go with its head.
  virtual void Attach() {}
  // Once all ranks have agreed.
  virtual Status Run() = 0;

 protected:
  CrossHostCall(Link* link, const Agreement& agreement, DType dtype)
      : link_(link),
        agreement_(agreement),
        hosts_(link->hosts),
        rank_(link->control->spec().rank),
        item_(SizeOf(dtype)),
        streams_(agreement.called(), link->worker.get(), &link->control->step(), rank_,
                 link->control->timeout_s()) {}

  // A call of this host's ranks inside this one. The ranks have agreed on all of it; the group of
  // this host counts steps of its own.
  template <typename Call>
  Status RunOnHost(Call call, Status (Communicator::*run)(const Call&)) {
    const Agreement agreement = agreement_.WithoutTerms();
    call.agreement = &agreement;
    const UserCall number(CallNumber(link_->control->step_number()));
    return (link_->host.get()->*run)(call);
  }

  Link* link_;
  const Agreement& agreement_;
  const HostMap& hosts_;
  const int rank_;
  const int64_t item_;  // bytes of an element
  Streams streams_;
};

// Memory of this process for calls, kept from one to the next. Its contents are not. One thread;
// waits for no one.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { Free(); }

  // At least so many bytes at data(); ERROR_OUT_OF_HOST_MEMORY if the process can get no more.
  Status Reserve(int64_t bytes);
  // Between calls: gives the memory back if it is more than kMostKeptBytes.
  void Trim();
  void Free();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  static constexpr int64_t kMostKeptBytes = 256 << 20;

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A block crosses once per destination host, cut over the ranks there.
std::unique_ptr<CrossHostCall> MakeAllGatherV(Link* link, const AllGatherVCall& call);
std::unique_ptr<CrossHostCall> MakeExchangeV(Link* link, const ExchangeVCall& call);

// In rank order. Every rank of another host sends its slice or, where that moves fewer bytes, the
// hosts pass on a running sum. `scratch` must outlive it.
std::unique_ptr<CrossHostCall> MakeReduceScatterV(Link* link, const ReduceScatterVCall& call,
                                                  KnownPlans* plans, Scratch* scratch);
// CPU ranks on several hosts: UCX between hosts, shared memory inside each. Control compares every
// call over the connections of the hosts. Thread-safety and waiting as in Communicator.
class UcxCommunicator : public BackendCommunicator {
 public:
  explicit UcxCommunicator(std::shared_ptr<control::Control> control)
      : BackendCommunicator(std::move(control)) {}
  ~UcxCommunicator() override;

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  // Memory of this rank alone: it is an ordinary tensor in every call, and saves no copy.
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;
  RankSet WindowPeers() const override;

 protected:
  Status ConnectAll() override;
  Status CheckShrinks() const override;
  Status CheckGrows() const override;
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoExchangeV(const ExchangeVCall& call) override;
  PairWires pair_wires() override { return pair_wires_->wires(); }
  void OnLeave() override;
  void OnClose() override;

 private:
  // One step: the ranks agree, then the data moves.
  Status RunStep(const Agreement& agreement, std::unique_ptr<CrossHostCall> call);

  // Set once first contact is complete.
  std::unique_ptr<Link> link_;
  std::unique_ptr<MessageWires> pair_wires_;
  KnownPlans plans_;  // of ReduceScatterV, as scratch_
  Scratch scratch_;
  std::recursive_mutex closing_;  // recursive: a signal handler of the thread may close, too
};

}  // namespace collops::ucx
