#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/call.h"
#include "collops/comm/communicator_spec.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/rank_set.h"
#include "collops/comm/user_calls.h"
#include "collops/comm/window.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace [[gnu::visibility("default")]] collops {

class BackendCommunicator;
class FusedCall;
struct FusedCallSpec;
struct StartedCall;

namespace kernels {
class StreamCompute;
}  // namespace kernels

// How the ranks of a group lie on devices, the same on every rank.
struct DeviceShare {
  int ranks = 1;                // the most that are on one device
  bool in_one_context = false;  // some of these are threads of one process
  int multiprocessors = 0;      // of the smallest device; 0: not known
  int blocks_beside = 0;        // of all ranks' collectives on one device, beside products
};

// A group of ranks and the way bytes move between them, by a backend (BackendCommunicator). Shared
// by the operations of a comm_domain, owned by the registry. Not thread-safe: a second thread
// inside a call gets an error; only Wait(), Test(), Abort() and Close() may be called from any
// thread. Every call waits for all ranks, at most timeout_s. After an error other than a refusal,
// all calls fail (`failed()`).
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  int rank() const { return spec_.rank; }
  int size() const { return spec_.rank_size; }
  const CommunicatorSpec& spec() const { return spec_; }
  double timeout_s() const;
  void set_timeout_s(double timeout_s);

  // Whether the plain level's even calls compare shapes; else numbers of elements, as torch does.
  bool compares_shapes() const { return compares_shapes_; }
  void set_compares_shapes(bool compares) { compares_shapes_ = compares; }

  // The device of the tensors of its calls; index -1: any device of that kind.
  virtual Device device() const { return Device(); }

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

  // For a call on streams whose numbers the host reads anew each time: all ranks come, on the host,
  // with `own`, which says whether the rank is well. Either all are, and agree, or each has an
  // error before anything is on a stream, and the group lives on. Waits for all ranks; a
  // communicator without a board, on a handle of the caller's, compares nothing. `stream`: of the
  // call, which may not be captured.
  Status AgreeOnHost(const Agreement& agreement, const Status& own, void* stream);

  // Shares a small piece of host memory of every rank with every rank: all[r] = mine of rank r,
  // `bytes` each. Control carries it, so it works on every backend.
  Status Share(const Agreement& agreement, const void* mine, int64_t bytes, void* all);

  // Runs `body` as this rank's part of a fused call, which reads its peers' memory as it is
  // written. For backends whose windows reach all ranks.
  Status RunFused(const FusedCallSpec& spec, const std::function<Status(FusedCall*)>& body);

  // Makes a subgroup of the ranks with the same color, numbered by key and then by rank here. Every
  // rank calls it; a rank with a negative color takes part and gets null.
  Status Split(int color, int key, std::shared_ptr<Communicator>* subgroup);

  // As Split(), once: a later call with that name returns the same subgroup. Every rank calls it
  // with the same names in the same order. `members`: the subgroup's ranks in their order, as
  // colors and keys make it. The subgroups close with this communicator, and a failure in one of
  // them ends all.
  Status KeptSplit(const std::string& name, int color, const std::vector<int>& members,
                   std::shared_ptr<Communicator>* subgroup);

  // After a loss: ends this communicator, if it has not failed yet, and makes one of the ranks that
  // are left, in their old order, with new memory; it has the comm_domain from then on. Each rank
  // that is left calls it with the same list of the ranks that are to go, which may be empty. It
  // waits for each rank that has not ended, at most timeout_s (0: the group's): a rank that has not
  // called it then is left out, and a call of that rank fails. Whichever ranks end meanwhile, all
  // that are left get the same group.
  Status Shrink(const std::vector<int>& exclude, double timeout_s,
                std::shared_ptr<Communicator>* shrunk);
  // Ends this communicator, and makes one that has `count` more ranks, with new memory and the same
  // comm_domain. Every rank calls it, with the same count; these keep their numbers, and new
  // processes that call Join() are numbered behind them, in the order in which they come. After
  // timeout_s (the least of the ranks'; 0: the group's) ERROR_TIMEOUT; this communicator is good
  // then, as after any other error of a new process.
  Status Grow(int count, double timeout_s, std::shared_ptr<Communicator>* grown);
  // In a new process: a communicator of the group of spec's comm_domain, job and backend, once its
  // ranks call Grow(). Its rank, rank_size and tuning are the group's to give.
  static Status Join(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* joined);
  // The ranks' numbers in the communicator that Shrink() made this one of; empty: it did not.
  const std::vector<int>& old_ranks() const;

  // Takes part in the next call with a refusal: the other ranks get `reason`'s message at once.
  // `name` is the operator's and must live as long as the process.
  Status Refuse(const char* name, const Status& reason);

  // The numbers of the user's calls; whoever takes a call from the user counts it here.
  // The number of the call that this thread makes for the user, or of a new one: a call of several
  // steps, such as one that first exchanges sizes, has one number. One thread at a time.
  uint64_t CallOfUser() { return UserCall::Number() == 0 ? ++user_calls_ : UserCall::Number(); }

  // The ranks that can address each other's windows, including this one: on several hosts those of
  // this host. None if the backend has no windows.
  virtual RankSet WindowPeers() const { return RankSet::None(size()); }

  // Memory that peers read in place. Local; an error if the backend has no windows.
  virtual Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) = 0;

  // Keeps `kept` alive until the work that is on `stream` now is done; `name` is the call's, for
  // messages. On the CPU nothing is.
  virtual Status KeepOnStream(const char* /*name*/, void* /*stream*/, KeepAlive /*kept*/) {
    return Ok();
  }

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

 private:
  friend class BackendCommunicator;
  // Close(); `goes_on`: with another group, which has been made of this one.
  void Leave(const std::string& reason, bool goes_on);
  explicit Communicator(const CommunicatorSpec& spec) : spec_(spec) {}
  BackendCommunicator& backend();
  const BackendCommunicator& backend() const;

  const CommunicatorSpec& spec_;  // owned by Control
  uint64_t user_calls_ = 0;
  bool compares_shapes_ = true;
};

}  // namespace collops
