#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collops/comm/call.h"
#include "collops/comm/communicator_spec.h"
#include "collops/comm/fused_call.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/rank_set.h"
#include "collops/comm/user_calls.h"
#include "collops/comm/window.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/core/trace/event.h"

namespace [[gnu::visibility("default")]] collops {

class CallQueue;
class Messenger;
class PairWire;
struct StartedCall;

namespace kernels {
class Compute;
class StreamCompute;
}  // namespace kernels

// How the ranks of a group lie on devices, the same on every rank.
struct DeviceShare {
  int ranks = 1;                // the most that are on one device
  bool in_one_context = false;  // some of these are threads of one process
  int multiprocessors = 0;      // of the smallest device; 0: not known
  int blocks_beside = 0;        // of all ranks' collectives on one device, beside products
};

// A group of ranks and the way bytes move between them. Control holds the group's state; a backend
// derives from this class and moves bytes. Shared by the operations of a comm_domain, owned by the
// registry. Not thread-safe: a second thread inside a call gets an error; only Wait(), Test(),
// Abort() and Close() may be called from any thread. Every call waits for all ranks, at most
// timeout_s. After an error other than a refusal, all calls fail (`failed()`).
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

  // Whether the plain level's even calls compare shapes; else numbers of elements, as torch does.
  bool compares_shapes() const { return compares_shapes_; }
  void set_compares_shapes(bool compares) { compares_shapes_ = compares; }

  // The device of the tensors of its calls; index -1: any device of that kind.
  virtual Device device() const { return Device(); }

  // Products and sums on the CPU; null: its tensors are on a device.
  virtual const kernels::Compute* compute() const { return nullptr; }
  // Products and sums on the streams of a device; null: there is none, or none that has them.
  virtual kernels::StreamCompute* stream_compute() { return nullptr; }

  // Of the ranks, once they have met.
  virtual DeviceShare device_share() const { return {}; }
  // For what this rank does on its device that may wait there for kernels of other ranks, and these
  // for this rank: in the first call with `key`, which is the same on all ranks, everyone comes,
  // does its `work`, and all go on together. Nothing where no ranks share a device's context.
  // `stream`: of the call, which may not be captured then.
  virtual Status PrepareTogether(const Agreement& /*agreement*/, uint64_t /*key*/, void* /*stream*/,
                                 const std::function<Status()>& /*work*/) {
    return Ok();
  }

  // Whether messages are put on streams, so that they have no tags and wait in a stream's order.
  virtual bool HasMessagesOnStreams() const { return false; }

  // Completes first contact: waits until every rank has arrived.
  Status Connect();

  // Ok, or why this backend cannot run the primitive with such elements.
  virtual Status Supports(Primitive primitive, DType dtype, ReduceOp op) const = 0;

  // Bytes of scratch memory, on the device, that a reduction over `num_ranks` ranks of this group
  // needs where `own_count` elements of the result are this rank's; none on the CPU.
  virtual int64_t ScratchBytes(DType /*dtype*/, ReduceOp /*op*/, int64_t /*own_count*/,
                               int /*num_ranks*/) const {
    return 0;
  }

  Status AllGatherV(const AllGatherVCall& call);
  Status ReduceScatterV(const ReduceScatterVCall& call);
  Status ExchangeV(const ExchangeVCall& call);
  Status AllReduce(const AllReduceCall& call);
  Status Broadcast(const BroadcastCall& call);
  // Waits for all ranks. On a device, what is put on `stream` later also waits for what all ranks
  // have put on theirs.
  Status Barrier(void* stream = nullptr);

  // This rank's sends and receives, all at once and in no order. Once the group has met, only the
  // ranks named in `list` take part. A transfer ends when its receiver has taken or refused it; a
  // refusal does not end the group. On a device they are put on `stream`, and no other rank
  // learns of a refusal.
  Status Messages(const CallName& name, Transfer* list, int count, void* stream = nullptr);
  // Takes part in messages that failed their own check: each peer gets `reason`'s message.
  Status RefuseMessages(const CallName& name, const Transfer* list, int count,
                        const Status& reason);

  // A started call. It lives until the last handle is released.
  using Handle = std::shared_ptr<StartedCall>;

  // Puts a group call into this rank's queue and returns without waiting for any rank. `body` makes
  // it, by one or more calls of this communicator, after all calls that were started before, in any
  // thread; a call that is not started waits until the queue is empty. What `body` uses must not
  // change until Wait() has returned or Test() has returned true. A failure of the group ends all
  // calls in the queue. The first Start() makes a thread, which Close() ends.
  Status Start(const char* name, std::function<Status()> body, Handle* handle);
  // Starts messages, which begin at once, whatever is in the queue. `keep` is kept alive until they
  // end.
  Status StartMessages(const CallName& name, const Transfer* list, int count, Handle* handle,
                       KeepAlive keep = nullptr, void* stream = nullptr);
  // Waits for the end and returns the outcome; may be called again. After timeout_s (0: the group's
  // time-out only) it ends the group; this counts from the call's beginning, for messages from
  // here. `sources`: the senders of received messages. From any thread, but not inside a `body`.
  Status Wait(const Handle& handle, double timeout_s = 0, std::vector<int>* sources = nullptr);
  // Whether the call has ended; does not wait.
  bool Test(const Handle& handle);
  // After the end of the group: ends the started calls and the queue's thread. Close() calls it.
  void EndStarted();

  // A call in which the ranks agree and no data moves. A backend that compares calls only with
  // COLLOPS_CHECK=1 compares nothing, and waits for no other rank here, without it.
  Status Agree(const Agreement& agreement);

  // Shares a small piece of host memory of every rank with every rank: all[r] = mine of rank r,
  // `bytes` each. Control carries it, so it works on every backend.
  Status Share(const Agreement& agreement, const void* mine, int64_t bytes, void* all);

  // Runs `body` as this rank's part of a fused call, which reads its peers' memory as it is
  // written. For backends whose windows reach all ranks.
  Status RunFused(const FusedCallSpec& spec, const FusedBody& body);

  // Makes a subgroup of the ranks with the same color, numbered by key and then by rank here. Every
  // rank calls it; a rank with a negative color takes part and gets null.
  Status Split(int color, int key, std::shared_ptr<Communicator>* subgroup);

  // As Split(), once: a later call with that name returns the same subgroup. Every rank calls it
  // with the same names in the same order. `members`: the subgroup's ranks in their order, as
  // colors and keys make it. The subgroups close with this communicator, and a failure in one of
  // them ends all.
  Status KeptSplit(const std::string& name, int color, const std::vector<int>& members,
                   std::shared_ptr<Communicator>* subgroup);

  // Takes part in the next call with a refusal: the other ranks get `reason`'s message at once.
  // `name` is the operator's and must live as long as the process.
  Status Refuse(const char* name, const Status& reason);

  // The numbers of the user's calls; whoever takes a call from the user counts it here.
  UserCalls& user_calls() { return user_calls_; }

  // The ranks that can address each other's windows, including this one: on several hosts those of
  // this host. None if the backend has no windows.
  virtual RankSet WindowPeers() const { return RankSet::None(size()); }

  // Memory that peers read in place. Local; an error if the backend has no windows.
  virtual Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) = 0;

  // Keeps `kept` alive until the work that is on `stream` now is done; `name` is the call's, for
  // messages. On the CPU nothing is.
  virtual Status KeepOnStream(const char* name, void* stream, KeepAlive kept);

  // Whether a window that AllocateWindow() made is still in use.
  virtual bool HasWindows() const { return false; }

  // Ok, or the error that an earlier call has left, which may be found when it has returned. Waits
  // for no other rank and for no work on a device.
  Status Check();

  // Ends every call of every rank with ERROR_ABORTED.
  void Abort(const std::string& reason);

  // Leaves the group once its calls on a device have ended; the other ranks get `reason` when they
  // next wait for this rank.
  void Close(const std::string& reason);

  // True after Close() or an error that ended the group; the registry then makes a new one.
  bool failed() const;

 protected:
  const std::shared_ptr<control::Control>& shared_control() const { return control_; }

  // The functions below are the backend's; Control has checked that the call may begin. Connected()
  // is called once, when first contact has created the shared memory; it does not wait.
  virtual void Connected() {}
  // Called once after Connected(), in the first call of every rank, whichever it is: the ranks make
  // what the backend needs before any call, and may wait for each other.
  virtual Status ConnectAll() { return Ok(); }
  // Connects the ranks in an engine, if the backend has one, which is done in the first call.
  virtual bool ConnectsInEngine() const { return false; }
  virtual Status DoConnect() { return Ok(); }
  virtual Status DoAgree(const Agreement& agreement);
  virtual Status DoAllGatherV(const AllGatherVCall& call) = 0;
  virtual Status DoReduceScatterV(const ReduceScatterVCall& call) = 0;
  virtual Status DoExchangeV(const ExchangeVCall& call);
  virtual Status DoRunFused(const FusedCallSpec& spec, const FusedBody& body);
  // Carries messages between two ranks; null: Supports() says why there is none. Owned by the
  // backend.
  virtual PairWire* pair_wire() { return nullptr; }
  // Puts messages on a stream; for backends with messages on streams.
  virtual Status DoMessages(const CallName& name, Transfer* list, int count, void* stream);
  virtual Status DoBarrier(const Agreement& agreement, void* stream);
  // Makes the backend's part of a subgroup, while all ranks are in Split(). `members` are the
  // subgroup's ranks in their order, and `index` this rank's place; empty and -1 for a rank that
  // joins none. `name` names the subgroup, equal on its ranks.
  virtual Status DoSplit(const std::vector<int>& members, int index, const std::string& name,
                         std::shared_ptr<void>* part);
  // What is wrong with calls that have returned, or with the other ranks.
  virtual Status DoCheck() { return Ok(); }
  // Tells the other ranks, which wait for this rank's call, why it refuses.
  virtual Status DoRefuse(const char* name, const Status& reason);
  // Waits, while this rank is still in the group, for its work on a device. From any thread.
  virtual void OnLeave() {}
  // Releases what an engine holds, from any thread.
  virtual void OnClose() {}

  // Default implementations on DoAllGatherV and DoReduceScatterV; a backend may override them.
  // AllReduce is a ReduceScatterV of an even split of the elements into `output`, then an
  // AllGatherV; Broadcast is an AllGatherV in which only the root has elements. Neither takes
  // scratch memory.
  virtual Status DoAllReduce(const AllReduceCall& call);
  virtual Status DoBroadcast(const BroadcastCall& call);

 private:
  // Runs `body` as this rank's only call, after the calls in the queue.
  template <typename Body>
  Status Enter(const char* name, Body&& body);
  template <typename Body>
  Status EnterNow(const char* name, Body&& body);
  // As Enter(), for messages, which do not wait for the queue.
  template <typename Body>
  Status EnterPairs(const char* name, Body&& body);
  void WarnOfWait(const Status& reason) const;
  // Posts messages that were started before first contact was complete.
  Status ConnectAndPost(StartedCall* call);
  Status StartOnStream(const CallName& name, const Transfer* list, int count, void* stream,
                       Handle* handle, KeepAlive keep);
  void PayVerdicts(const char* name);
  Status FinishConnecting();
  Status MakeQueue(const char* name);
  // As Enter(), traced, for a call that all ranks make. `moved()` says what is moved.
  template <typename Moved, typename Body>
  Status Run(const CallName& name, Moved&& moved, Body&& body);
  // `group`: the number of the group's call, 0: not all ranks make it.
  template <typename Moved, typename Body>
  Status Traced(const char* name, uint64_t group, Moved&& moved, Body&& body);
  // The number of the next call that all ranks make; equal on all ranks.
  uint64_t NextGroupCall();
  const recording::Lane& lane();
  // An error if the backend carries no messages.
  Status CheckMessages(const char* name) const;
  // A subgroup that is about to be made: its ranks here in their order, and how they meet.
  struct Part;
  Status GetSubgroup(const Part& part, std::shared_ptr<Communicator>* subgroup);
  // As MakeSubgroup(), of a group without a board.
  Status MakeUnseen(const std::string& name, int color, const std::vector<int>& members,
                    std::shared_ptr<Communicator>* subgroup);
  Status MakeSubgroup(int color, int key, bool kept, std::shared_ptr<Communicator>* subgroup);

  std::shared_ptr<control::Control> control_;
  const CommunicatorSpec& spec_;          // owned by Control
  std::unique_ptr<Messenger> messenger_;  // set once first contact is complete
  std::unique_ptr<CallQueue> queue_owner_;
  std::atomic<CallQueue*> queue_{nullptr};  // set once a call was started
  std::map<std::string, std::shared_ptr<Communicator>> kept_subgroups_;
  UserCalls user_calls_;
  const bool traced_;
  const uint64_t lane_id_;
  std::once_flag lane_described_;
  recording::Lane lane_;
  std::atomic<uint64_t> group_calls_{0};
  std::atomic<bool> connected_{false};
  bool compares_shapes_ = true;
  // Number of traced calls. Atomic: a second thread may get here before its error.
  std::atomic<uint64_t> num_calls_{0};
};

}  // namespace collops
