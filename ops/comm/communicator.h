#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/fused_call.h"
#include "comm/window.h"
#include "core/status.h"
#include "core/trace.h"

namespace collops {

// ATB's CommMode: whether the ranks are processes, or threads of one process.
enum CommMode : int {
  COMM_UNDEFINED = -1,
  COMM_MULTI_PROCESS = 0,
  COMM_MULTI_THREAD = 1,
};

// What a communicator is asked to be.
struct CommunicatorSpec {
  std::string backend;
  std::string comm_domain;
  int rank = 0;
  int rank_size = 0;
  CommMode comm_mode = COMM_MULTI_PROCESS;
  double timeout_s = 300.0;
  // Asked during first contact, which an error ends: whether the ranks to come can come at all.
  std::function<Status()> watch = {};
};

// A group of ranks and how bytes move between them; a backend derives from it. Shared by the
// operations of a comm_domain, owned by the registry. Not thread-safe: a second thread inside a
// call gets an error; only Abort() and Close() may be called from anywhere. Every call waits for
// all ranks, at
// most timeout_s. After an error other than a refusal it refuses calls (`failed()`).
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  explicit Communicator(CommunicatorSpec spec) : spec_(std::move(spec)) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator();

  int rank() const { return spec_.rank; }
  int size() const { return spec_.rank_size; }
  const CommunicatorSpec& spec() const { return spec_; }
  double timeout_s() const { return spec_.timeout_s; }
  void set_timeout_s(double timeout_s) { spec_.timeout_s = timeout_s; }

  // Where the tensors of its calls lie; an index of -1 stands for any device of that kind.
  virtual Device device() const { return Device(); }

  // Completes first contact: waits until every rank is there.
  virtual Status Connect() = 0;

  // Ok, or why this backend cannot run such a call.
  virtual Status Supports(CallKind kind, DType dtype, ReduceOp op) const = 0;

  Status AllGatherV(const AllGatherVCall& call);
  Status ReduceScatterV(const ReduceScatterVCall& call);
  Status AllReduce(const AllReduceCall& call);
  Status Broadcast(const BroadcastCall& call);
  Status Barrier();

  // Runs `body` as this rank's part of a fused call: it reads its peers' memory as it comes. For
  // backends with windows.
  Status RunFused(const FusedCallSpec& spec, const FusedBody& body);
  virtual bool HasWindows() const { return false; }

  // Makes a communicator of the ranks with the same color, numbered by key and then by rank here.
  // Every rank calls it; one with a negative color takes part and gets null.
  virtual Status Split(int color, int key, std::shared_ptr<Communicator>* part);

  // The same, once: a later call with that name hands out the same part. Every rank calls it with
  // the same names in the same order. The parts are closed with this communicator.
  Status KeptSplit(const std::string& name, int color, int key,
                   std::shared_ptr<Communicator>* part);

  // Takes part in the next call with a refusal: the others get `reason`'s message at once.
  virtual Status Refuse(CallKind kind, const Status& reason) = 0;

  // For a backend that uses this communicator beside its own engine: compares a call with the other
  // ranks' and moves nothing; and says, without waiting, whether a rank has left or ended.
  virtual Status Compare(const AllGatherVCall& call);
  virtual Status Compare(const ReduceScatterVCall& call);
  virtual Status FindLoss() { return Ok(); }
  // Of some ranks: whether a process has ended; or also whether one has left, or the group failed.
  virtual Status FindLossAmong(const std::vector<int>& /*ranks*/, bool /*also_left*/) {
    return Ok();
  }

  // Memory that peers read in place. Local; an error where the backend has no windows.
  virtual Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) = 0;

  // Ends every call of every rank with ERROR_ABORTED.
  virtual void Abort(const std::string& reason) = 0;

  // Ends those after this rank's last one with `status`: for a failure that this communicator has
  // not seen itself. Between calls.
  virtual void EndGroup(const Status& status) { Abort(status.message()); }

  // Leaves the group; the others learn `reason` when they next wait for this rank.
  virtual void Close(const std::string& reason) = 0;

  // True after Close() or an error that ended the group; the registry then makes a new one.
  virtual bool failed() const = 0;

 protected:
  virtual Status DoAllGatherV(const AllGatherVCall& call) = 0;
  virtual Status DoReduceScatterV(const ReduceScatterVCall& call) = 0;
  virtual Status DoBarrier() = 0;
  virtual Status DoRunFused(const FusedCallSpec& spec, const FusedBody& body);

  // Made from the two above; a backend that has them itself overrides them. AllReduce is a
  // ReduceScatterV of an even split of the elements into `output`, and their AllGatherV; Broadcast
  // an AllGatherV in which only the root has elements. Neither takes scratch memory.
  virtual Status DoAllReduce(const AllReduceCall& call);
  virtual Status DoBroadcast(const BroadcastCall& call);

 private:
  Status MakePart(int color, int key, bool kept, std::shared_ptr<Communicator>* part);

  uint64_t CountCall();

  CommunicatorSpec spec_;
  std::map<std::string, std::shared_ptr<Communicator>> kept_parts_;
  const bool traced_ = TraceEnabled();
  // Atomic because a second thread may come by before it gets its error.
  std::atomic<uint64_t> num_calls_{0};
};

}  // namespace collops
