#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/comm/control/group.h"
#include "collops/comm/fused_call.h"
#include "collops/core/deadline.h"
#include "collops/core/trace/event.h"

namespace collops {

class CallQueue;
class Messenger;
struct PairWires;

// What a backend derives from: the functions that it implements, and the state of a communicator
// that all backends share. Control holds the group's state, and says before each of the functions
// below whether the call may begin. Every Communicator is one.
class BackendCommunicator : public Communicator {
 public:
  explicit BackendCommunicator(std::shared_ptr<control::Control> control);
  ~BackendCommunicator() override;

  const control::GroupSpec& spec() const { return group_spec_; }
  control::Control& control() const { return *control_; }

 protected:
  const std::shared_ptr<control::Control>& shared_control() const { return control_; }

  // Called once, when first contact has created the shared memory; it does not wait.
  virtual void Connected() {}
  // Called once after Connected(), in the first call of every rank, whichever it is: the ranks make
  // what the backend needs before any call, and may wait for each other.
  virtual Status ConnectAll() { return Ok(); }
  // Connects the ranks in an engine, if the backend has one, which is done in the first call.
  virtual bool ConnectsInEngine() const { return false; }
  virtual Status DoConnect() { return Ok(); }
  virtual Status DoAgree(const Agreement& agreement);
  virtual Status DoAgreeOnHost(const Agreement& agreement, const Status& own, void* /*stream*/) {
    return own.ok() ? DoAgree(agreement) : own;
  }
  virtual Status DoAllGatherV(const AllGatherVCall& call) = 0;
  virtual Status DoReduceScatterV(const ReduceScatterVCall& call) = 0;
  virtual Status DoExchangeV(const ExchangeVCall& call);
  virtual Status DoRunFused(const FusedCallSpec& spec, const FusedBody& body);
  // Carry messages between two ranks; none: Supports() says why. Owned by the backend.
  virtual PairWires pair_wires();
  // Puts messages on a stream; for backends with messages on streams.
  virtual Status DoMessages(const CallName& name, Transfer* list, int count, void* stream);
  virtual Status DoBarrier(const Agreement& agreement, void* stream);
  // Makes the backend's part of a subgroup, while all ranks are in Split(). `members` are the
  // subgroup's ranks in their order, and `index` this rank's place; empty and -1 for a rank that
  // joins none. `name` names the subgroup, equal on its ranks.
  virtual Status DoSplit(const std::vector<int>& /*members*/, int /*index*/,
                         const std::string& /*name*/, std::shared_ptr<void>* /*part*/) {
    return Ok();
  }
  // Ok, or why Shrink() cannot make a new group.
  virtual Status CheckShrinks() const;
  // Ok, or why Grow() cannot make a larger one.
  virtual Status CheckGrows() const;
  // In Shrink(), for work on a device. Before the group has ended, it has a moment to end by
  // itself, at most so long, unless a rank is lost; that of `excluded` is not waited for. When the
  // group has ended, the rest is ended, which is an error if it lasts until the deadline.
  virtual void AwaitCalls(double /*limit_s*/, const RankSet& /*excluded*/) {}
  virtual Status EndCalls(const Deadline& /*deadline*/) { return Ok(); }
  // What is wrong with calls that have returned, or with the other ranks.
  virtual Status DoCheck() { return Ok(); }
  // Tells the other ranks, which wait for this rank's call, why it refuses.
  virtual Status DoRefuse(const char* name, const Status& reason);
  // Waits, while this rank is still in the group, for its work on a device. From any thread.
  virtual void OnLeave() {}
  // Releases what an engine holds, from any thread.
  virtual void OnClose() {}

  // Made of DoAllGatherV and DoReduceScatterV, without scratch memory; a backend may override them.
  // AllReduce is a ReduceScatterV of an even split of the elements into `output`, then an
  // AllGatherV; Broadcast is an AllGatherV in which only the root has elements.
  virtual Status DoAllReduce(const AllReduceCall& call);
  virtual Status DoBroadcast(const BroadcastCall& call);

 private:
  friend class Communicator;
  friend class CallScope;

  // After first contact, in the first call.
  Status FinishConnecting();
  // Makes the queue of the started calls, if there is none.
  Status MakeQueue(const char* name);
  // Posts messages that were started before first contact was complete.
  Status ConnectAndPost(StartedCall* call);
  Status StartOnStream(const CallName& name, const Transfer* list, int count, void* stream,
                       Handle* handle, KeepAlive keep);
  // An error if the backend carries no messages.
  Status CheckMessages(const char* name) const;
  void PayVerdicts(const char* name);
  void WarnOfWait(const Status& reason) const;
  const recording::Lane& lane();
  // A subgroup that is about to be made: its ranks here in their order, and how they meet.
  struct Part;
  // The parameters of a group of some of these ranks, which still lacks who they are.
  control::GroupSpec SpecOfPart() const;
  Status EndForShrink(const RankSet& excluded, double timeout_s);
  Status GetSubgroup(const Part& part, std::shared_ptr<Communicator>* subgroup);
  Status MakeSubgroup(int color, int key, bool kept, std::shared_ptr<Communicator>* subgroup);
  // As MakeSubgroup(), of a group without a board.
  Status MakeUnseen(const std::string& name, int color, const std::vector<int>& members,
                    std::shared_ptr<Communicator>* subgroup);

  std::shared_ptr<control::Control> control_;
  const control::GroupSpec& group_spec_;  // owned by Control
  std::unique_ptr<Messenger> messenger_;  // set once first contact is complete
  std::unique_ptr<CallQueue> queue_owner_;
  std::atomic<CallQueue*> queue_{nullptr};  // set once a call was started
  std::map<std::string, std::shared_ptr<Communicator>> kept_subgroups_;
  std::atomic<bool> connected_{false};
  // For the trace.
  const bool traced_;
  const uint64_t lane_id_;
  std::once_flag lane_described_;
  recording::Lane lane_;
  // Calls that all ranks make, equal on all ranks, and traced calls. Atomic: a second thread may
  // get here before its error.
  std::atomic<uint64_t> group_calls_{0};
  std::atomic<uint64_t> num_calls_{0};
};

// There is no other class of communicators.
inline BackendCommunicator& Communicator::backend() {
  return static_cast<BackendCommunicator&>(*this);
}
inline const BackendCommunicator& Communicator::backend() const {
  return static_cast<const BackendCommunicator&>(*this);
}

// The group's state, for those who know of it.
inline control::Control& ControlOf(const Communicator& communicator) {
  return static_cast<const BackendCommunicator&>(communicator).control();
}

}  // namespace collops
