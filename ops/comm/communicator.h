#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/communicator_spec.h"
#include "comm/fused_call.h"
#include "comm/pairs/transfer.h"
#include "comm/rank_set.h"
#include "comm/user_calls.h"
#include "comm/window.h"
#include "core/status.h"
#include "core/tensor.h"
#include "core/trace.h"

namespace collops {

class CallQueue;
class Messenger;
class PairWire;
struct StartedCall;

namespace kernels {
class Compute;
}

// A group of ranks and how bytes move between them. Who is there and whether a call may go on is
// Control's; a backend derives from this class and moves bytes. Shared by the operations of a
// comm_domain, owned by the registry. Not thread-safe: a second thread inside a call gets an error;
// only Wait(), Test(), Abort() and Close() may be called from anywhere. Every call waits for all
// ranks, at most timeout_s. After an error other than a refusal it refuses calls (`failed()`).
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  explicit Communicator(std::shared_ptr<control::Control> control);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator();

  int rank() const { return spec().rank; }
  int size() const { return spec().rank_size; }
  const CommunicatorSpec& spec() const { return spec_; }
  double timeout_s() const;
  void set_timeout_s(double timeout_s);
  control::Control& control() const { return *control_; }

  // Where the tensors of its calls lie; an index of -1 stands for any device of that kind.
  virtual Device device() const { return Device(); }

  // The products and sums of that device; null: LinearParallel does not run here.
  virtual const kernels::Compute* compute() const { return nullptr; }

  // Completes first contact: waits until every rank is there.
  Status Connect();

  // Ok, or why this backend cannot do that with such elements.
  virtual Status Supports(Primitive primitive, DType dtype, ReduceOp op) const = 0;

  Status AllGatherV(const AllGatherVCall& call);
  Status ReduceScatterV(const ReduceScatterVCall& call);
  Status ExchangeV(const ExchangeVCall& call);
  Status AllReduce(const AllReduceCall& call);
  Status Broadcast(const BroadcastCall& call);
  Status Barrier();

  // This rank's sends and receives, all at once and in no order. Only the ranks that they name take
  // part, once the group has met. Each ends when its receiver has taken or refused it; the error of
  // a refusal leaves the group good. `name` is the call's, for messages.
  Status Messages(const char* name, Transfer* list, int count);
  // Takes part in messages that failed their own check: each peer gets `reason`'s message.
  Status RefuseMessages(const char* name, const Transfer* list, int count, const Status& reason);

  // A call that was started. It lives until the last one lets go of it.
  using Handle = std::shared_ptr<StartedCall>;

  // Puts a call of the group into the queue of this rank and returns without waiting for anyone.
  // `body` makes it, by one or more of this communicator's calls, in its turn: after all that were
  // started before, in whatever thread that is; a call of the usual kind waits until those in the
  // queue have ended. What `body` uses must stay as it is until Wait() has returned or Test() has
  // said true. A failure of the group ends all that are in the queue. The first Start() makes a
  // thread, which Close() ends.
  Status Start(const char* name, std::function<Status()> body, Handle* handle);
  // The same of messages, which begin at once, whatever is in the queue. `keep` stays until their
  // end.
  Status StartMessages(const char* name, const Transfer* list, int count, Handle* handle,
                       Kept keep = nullptr);
  // Waits for the end and returns how it ended, as often as it is asked. timeout_s ends the group
  // before its own time-out does, 0: it does not; it counts from when the call begins, of messages
  // from here. `sources`, of messages: whose each was. From any thread, but not inside a `body`.
  Status Wait(const Handle& handle, double timeout_s = 0, std::vector<int>* sources = nullptr);
  // Whether it has ended; waits for no one.
  bool Test(const Handle& handle);
  // Ends what has not ended of a group that has, and the thread. Close() does it.
  void EndStarted();

  // A call in which the ranks agree and nothing moves.
  Status Agree(const Agreement& agreement);

  // Small host memory of every rank to every rank: all[r] = mine of rank r, `bytes` each. Carried
  // by Control, so it works on every backend.
  Status Share(const Agreement& agreement, const void* mine, int64_t bytes, void* all);

  // Runs `body` as this rank's part of a fused call: it reads its peers' memory as it comes. For
  // backends whose windows reach all ranks.
  Status RunFused(const FusedCallSpec& spec, const FusedBody& body);

  // Makes a communicator of the ranks with the same color, numbered by key and then by rank here.
  // Every rank calls it; one with a negative color takes part and gets null.
  Status Split(int color, int key, std::shared_ptr<Communicator>* part);

  // The same, once: a later call with that name hands out the same part. Every rank calls it with
  // the same names in the same order. The parts are closed with this communicator, and a failure in
  // one ends all.
  Status KeptSplit(const std::string& name, int color, int key,
                   std::shared_ptr<Communicator>* part);

  // Takes part in the next call with a refusal: the others get `reason`'s message at once. `name`
  // is the operator's, a text that lives as long as the process.
  Status Refuse(const char* name, const Status& reason);

  // Numbers the calls that a user makes; whoever takes calls from one does so.
  UserCalls& user_calls() { return user_calls_; }

  // The ranks that address each other's windows directly, this one among them; of several hosts
  // those of one. None where the backend has no windows.
  virtual RankSet WindowPeers() const { return RankSet::None(size()); }

  // Memory that peers read in place. Local; an error where the backend has no windows.
  virtual Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) = 0;

  // Whether somebody holds a window that AllocateWindow() made.
  virtual bool HasWindows() const { return false; }

  // Ends every call of every rank with ERROR_ABORTED.
  void Abort(const std::string& reason);

  // Leaves the group, once its calls on a device have ended; the others learn `reason` when they
  // next wait for this rank.
  void Close(const std::string& reason);

  // True after Close() or an error that ended the group; the registry then makes a new one.
  bool failed() const;

 protected:
  // What a backend does once Control has let a call in. Before the first of them first contact is
  // complete, and Connected() looks at the memory that it has made; it waits for no one.
  virtual void Connected() {}
  // Brings the ranks together in an engine, where a backend has one.
  virtual Status DoConnect() { return Ok(); }
  virtual Status DoAgree(const Agreement& agreement);
  virtual Status DoAllGatherV(const AllGatherVCall& call) = 0;
  virtual Status DoReduceScatterV(const ReduceScatterVCall& call) = 0;
  virtual Status DoExchangeV(const ExchangeVCall& call);
  virtual Status DoRunFused(const FusedCallSpec& spec, const FusedBody& body);
  // What carries messages between two ranks; null: Supports() says why there is none. Belongs to
  // the backend.
  virtual PairWire* pair_wire() { return nullptr; }
  // Tells the others why this rank does not come to what they wait for.
  virtual Status DoRefuse(const char* name, const Status& reason);
  // Waits, while this rank is still there, for what it has put on a device. From any thread.
  virtual void OnLeave() {}
  // Gives back what an engine holds, from any thread.
  virtual void OnClose() {}

  // Made from the two above; a backend that has them itself overrides them. AllReduce is a
  // ReduceScatterV of an even split of the elements into `output`, and their AllGatherV; Broadcast
  // an AllGatherV in which only the root has elements. Neither takes scratch memory.
  virtual Status DoAllReduce(const AllReduceCall& call);
  virtual Status DoBroadcast(const BroadcastCall& call);

 private:
  // Runs `body` as this rank's only call, after those in the queue.
  template <typename Body>
  Status Enter(const char* name, Body&& body);
  template <typename Body>
  Status EnterNow(const char* name, Body&& body);
  // The same of messages, beside those in the queue.
  template <typename Body>
  Status EnterPairs(const char* name, Body&& body);
  // Posts messages that were started before first contact was complete.
  Status ConnectAndPost(StartedCall* call);
  void PayVerdicts(const char* name);
  void FinishConnecting();
  Status MakeQueue(const char* name);
  // The same, traced. `sizes()` says what is moved.
  template <typename Sizes, typename Body>
  Status Run(const char* name, Sizes&& sizes, Body&& body);
  template <typename Sizes, typename Body>
  Status Traced(const char* name, Sizes&& sizes, Body&& body);
  // An error where the backend carries no messages.
  Status CheckMessages(const char* name) const;
  Status GetPart(const std::vector<int>& members, int color, int64_t token, bool kept,
                 std::shared_ptr<Communicator>* part);
  Status MakePart(int color, int key, bool kept, std::shared_ptr<Communicator>* part);

  std::shared_ptr<control::Control> control_;
  const CommunicatorSpec& spec_;          // Control's
  std::unique_ptr<Messenger> messenger_;  // once first contact is complete
  std::unique_ptr<CallQueue> queue_owner_;
  std::atomic<CallQueue*> queue_{nullptr};  // once a call was started
  std::map<std::string, std::shared_ptr<Communicator>> kept_parts_;
  UserCalls user_calls_;
  const bool traced_ = TraceEnabled();
  std::atomic<bool> connected_{false};
  // Of calls that were traced. Atomic because a second thread may come by before it gets its error.
  std::atomic<uint64_t> num_calls_{0};
};

}  // namespace collops
