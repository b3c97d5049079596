#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/call.h"
#include "collops/comm/control/control.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/rank_set.h"
#include "collops/comm/user_calls.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"
#include "collops/kernels/device_runtime.h"
#include "collops/kernels/stream_compute.h"

namespace collops {

// What a call's counts, which every rank knows, say of the calls of a vendor's library that it can
// be made of.
// Whether the blocks have one size and lie one after the other from 0 on.
bool AreEven(const int64_t* counts, const int64_t* displs, int rank_size);

bool AreZero(const int64_t* counts, int rank_size);

// Whether only one of several ranks has elements.
bool HasOneOwner(const int64_t* counts, int rank_size);

using kernels::DeviceRuntime;

// The calls of one communicator that are on streams of a device. Keeps alive what their work needs
// after they have returned: plans, counts, staging. Each object is kept until an event behind the
// call's work is reached; for a captured call, as long as its graph. What cannot be known to be
// past is kept until the process ends, so nothing is destroyed under running work. One thread at a
// time, with that device as the thread's current one; but KnownAge() from any. Only Drain() waits.
class CallsInFlight {
 public:
  explicit CallsInFlight(DeviceRuntime* runtime)
      : runtime_(runtime), captured_(std::make_shared<const char>()) {}
  // Does not wait: what was not drained is kept until the process ends.
  ~CallsInFlight();
  CallsInFlight(const CallsInFlight&) = delete;
  CallsInFlight& operator=(const CallsInFlight&) = delete;

  // Keeps `kept` alive for the work that is on `stream` now. Called after the last step of a call,
  // also of one that failed half way; `name` and `number` are the call's, for errors that are found
  // later. With a null `kept`, Drain() waits for that work. Calls Reap() first, unless the stream
  // is captured: then no event is queried and none is made. After an error `kept` is kept until the
  // process ends.
  Status Keep(DeviceRuntime::Stream stream, KeepAlive kept, const char* name, uint64_t number);

  // Whether the stream is captured.
  Status FindCapture(DeviceRuntime::Stream stream, bool* is_captured) const;

  // Releases what is past. Returns the state of the rest; kReached if nothing is left.
  DeviceRuntime::Progress Reap();

  // Streams run their calls in order, so the first call that has not ended is the one that failed,
  // or waits behind it: the name of that call of each stream, empty if all have ended.
  std::string NamesAhead();

  // Seconds since the oldest call was put on its stream of which it is not known that it has ended;
  // 0 if all have. From any thread: no device is asked.
  double KnownAge() const;

  // Waits until all work is past, then destroys the events. An error if that cannot be known by the
  // deadline, or a captured graph can still be replayed; what is not past is kept until the process
  // ends.
  Status Drain(const Deadline& deadline);

  // Whether Drain() has nothing to do: no work and no events. What graphs keep does not count.
  bool empty() const { return lines_.empty() && free_events_.empty(); }

  // Whether a captured graph exists, whose replays nobody sees.
  bool has_graphs() const { return captured_.use_count() > 1; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Work {
    DeviceRuntime::Event event;
    KeepAlive kept;
    const char* name;
    uint64_t number;
    Clock::time_point begin;
  };
  // The work of one stream, in order: work behind an event that is not reached is not past either.
  struct Line {
    DeviceRuntime::Stream stream;
    std::deque<Work> works;
  };

  Status Mark(DeviceRuntime::Stream stream, DeviceRuntime::Event* event);
  Status WaitForAll(const Deadline& deadline);
  void NoteOldest();

  DeviceRuntime* const runtime_;
  std::vector<Line> lines_;
  std::vector<DeviceRuntime::Event> free_events_;
  KeepAlive captured_;     // shared with what graphs keep alive
  bool unmarked_ = false;  // some work has no event, so its end cannot be known
  // When the oldest call of KnownAge() was put on its stream, as Clock counts; 0: all have ended.
  std::atomic<Clock::rep> oldest_{0};
};

// How ranks lie on devices, which have told each other their homes, but for the blocks of their
// kernels.
template <class Home>
DeviceShare ShareOf(const std::vector<Home>& homes) {
  DeviceShare share;
  share.multiprocessors = homes[0].multiprocessors;
  for (const Home& home : homes) {
    int ranks = 0;
    int threads = 0;
    for (const Home& other : homes) {
      ranks += OnOneDevice(home, other) ? 1 : 0;
      threads += OnOneDevice(home, other) && InOneProcess(home, other) ? 1 : 0;
    }
    share.ranks = std::max(share.ranks, ranks);
    share.in_one_context = share.in_one_context || threads > 1;
    share.multiprocessors = std::min(share.multiprocessors, int{home.multiprocessors});
  }
  return share;
}

// What a split leaves in the subgroup's spec, which outlives the subgroup's Close: the handle of
// the vendor's group goes to the subgroup in first contact, or ends at Close.
using PartInSpec = std::shared_ptr<void>;

// The name of first contact in agreements and messages, and of the call in which a rank refuses it.
inline constexpr char kFirstContact[] = "first contact";

// How many messages of this rank are on streams, by peer. Thread-safe; waits for nothing.
class MessagesUnderWay {
 public:
  explicit MessagesUnderWay(int rank_size)
      : counts_(std::make_shared<Counts>(static_cast<size_t>(rank_size))) {}

  // The messages are under way until nobody holds what this returns.
  KeepAlive Begin(const Transfer* list, int count) const {
    std::vector<size_t> peers;
    for (int i = 0; i < count; ++i) peers.push_back(static_cast<size_t>(list[i].peer));
    for (const size_t peer : peers) ++(*counts_)[peer];
    return KeepAlive(nullptr, [counts = counts_, peers](const void*) {
      for (const size_t peer : peers) --(*counts)[peer];
    });
  }

  RankSet Peers() const {
    RankSet peers = RankSet::None(static_cast<int>(counts_->size()));
    for (size_t peer = 0; peer < counts_->size(); ++peer) {
      if ((*counts_)[peer] > 0) peers.Add(static_cast<int>(peer));
    }
    return peers;
  }

 private:
  using Counts = std::vector<std::atomic<int>>;
  const std::shared_ptr<Counts> counts_;
};

// Devices connected by a vendor's library, on one host or many. A call is put on the caller's
// stream and returns. First contact, splits and barriers use Control's board; with COLLOPS_CHECK=1
// calls are compared there first. A backend derives from this class, and adds the calls and what
// its library does. Thread-safety as in Communicator; waits in first contact, in comparisons, and
// in Close() until the calls have ended.
class StreamCommunicator : public BackendCommunicator {
 public:
  Device device() const override { return {kind_, device_index_}; }
  DeviceShare device_share() const override { return share_; }
  Status PrepareTogether(const Agreement& agreement, uint64_t key, void* stream,
                         const std::function<Status()>& work) override;
  kernels::StreamCompute* stream_compute() override;
  bool HasMessagesOnStreams() const override { return true; }
  Status AllocateWindow(int64_t /*bytes*/, std::shared_ptr<Window>* /*window*/) override {
    return Supports(Primitive::kWindows, DType::kUndefined, ReduceOp::kSum);
  }
  Status KeepOnStream(const char* name, void* stream, KeepAlive kept) override;

  // For the watcher. Looks whether something must be ended, and ends it: reads the host's memory
  // and clock only, as a call of the device's library may wait for what must be ended.
  void Look();
  // Asks the device for what Look() cannot see. In another thread than Look(), which a new one
  // replaces while this waits in a library.
  void Ask();

 protected:
  // `compares`: COLLOPS_CHECK=1. `runtime` is the derived class's.
  StreamCommunicator(std::shared_ptr<control::Control> control, DeviceKind kind, bool compares,
                     kernels::DeviceRuntime* runtime);
  // For the constructor and the destructor of a derived class, whose functions they need.
  void Begin() { static_cast<void>(NoteDevice()); }  // an error is reported in first contact
  void Finish();

  // The products and sums of the device, for stream_compute(); set by the derived class.
  void SetCompute(std::unique_ptr<kernels::StreamCompute> compute) {
    compute_ = std::move(compute);
  }
  void SetShare(const DeviceShare& share) { share_ = share; }

  const std::atomic<int>& device_index() const { return device_index_; }
  bool compares() const { return compares_; }

  // What a library does. One of these at a time; but connected(), WaitingS() and AbortCalls() also
  // while another one runs. Only Meet() waits.
  //
  // The first calls may be made.
  virtual bool connected() const = 0;
  // The device that this thread has chosen.
  virtual Status FindDevice(int* device) const = 0;
  // For a thread that asks unbidden: its questions must not disturb a capture elsewhere.
  virtual void AllowCaptures() const {}
  // Runs `step` with that device as the thread's current one; after an error `step` was not run.
  virtual Status OnDevice(int device, const std::function<void()>& step) const = 0;
  // Connects the ranks, in the first call of every rank: waits for all ranks, at most the time-out.
  // The ranks agree on COLLOPS_CHECK on the way, if there is a board.
  virtual Status Meet() = 0;
  // Ok, or an error of an earlier call, as the library tells it. Does not wait.
  virtual Status AsyncError() = 0;
  // Ok, or that a call has failed on the device, which then makes no other one. Does not wait.
  virtual Status DeviceError() { return Ok(); }
  // Seconds that a call on a stream has waited for other ranks, also a replayed one; none if no
  // call waits, or if the host's memory does not show it. For the watcher thread, which compares
  // with what it saw the last time.
  virtual std::optional<double> WaitingS() { return std::nullopt; }
  // Whether the calls compare themselves when they run. The host then compares no captured one.
  virtual bool ComparesReplays() const { return false; }
  // Whether calls on streams can wait for ever, and end only by AbortCalls(). The watcher thread
  // then looks for lost ranks and for calls that have exceeded the time-out.
  virtual bool EndsByAbort() const { return false; }
  // Whether the library's group is the caller's.
  virtual bool IsHandedIn() const { return false; }
  // Ends the calls that are on streams, whose results are then undefined. Does not wait for that.
  virtual void AbortCalls() {}
  // How long Close() waits for calls: one that its peers have left never ends.
  virtual double Patience() const = 0;
  // Lets go of the library's handle and of memory on the device, with this as the current one if
  // `past`, which says that all calls have ended; what calls may still use is never given back.
  virtual void LetGo(bool past) = 0;

  // Runs `step` with this communicator's device as the thread's current one.
  template <typename Step>
  Status RunOnDevice(const char* name, Step&& step);
  // Puts a call on its stream. `agreement`: what is compared first with COLLOPS_CHECK=1; null:
  // nothing. `step` gets the call's `keep`, and leaves in it all that the stream still reads. A
  // rank of `needed` must still be there, whatever calls it has made.
  template <typename Step>
  Status Enqueue(const char* name, const Agreement* agreement, void* stream, KeepAlive keep,
                 Step&& step, const RankSet& needed = {});
  template <typename Call, typename Step>
  Status Enqueue(const Call& call, Step&& step) {
    return Enqueue(call.agreement->called(), call.agreement, call.stream, call.keep, step);
  }
  // As Communicator::DoMessages(): `step` puts the list on the stream. `library`: the vendor's
  // name.
  template <typename Step>
  Status EnqueueMessages(const char* name, const char* library, Transfer* list, int count,
                         void* stream, Step&& step);
  // The host waits for all ranks, and then `step` makes the stream wait for all ranks' streams.
  template <typename Step>
  Status EnqueueBarrier(const Agreement& agreement, void* stream, Step&& step);

  Status MeetOnce(const char* name);
  // Whether calls on the stream go into a graph.
  Status FindCapture(void* stream, bool* is_captured) const {
    return calls_.FindCapture(stream, is_captured);
  }
  // Refuses with an error of this rank alone.
  Status Decline(const char* name, const Status& reason);
  // The error with the call's name in front, unless it is there already.
  static Status InCall(const char* name, const Status& status);

  bool ConnectsInEngine() const override { return true; }
  Status DoConnect() override;
  Status DoAgree(const Agreement& agreement) override;
  Status DoAgreeOnHost(const Agreement& agreement, const Status& own, void* stream) override;
  Status DoCheck() override;
  Status DoRefuse(const char* name, const Status& reason) override;
  void OnLeave() override;
  void OnClose() override;
  Status CheckShrinks() const override { return CheckMeetsAnew("shrink"); }
  Status CheckGrows() const override;
  void AwaitCalls(double limit_s, const RankSet& excluded) override;
  Status EndCalls(const Deadline& deadline) override;
  // Whether the calls of all ranks are known to have ended, but for those of `others`.
  bool HaveAllCallsEnded(const RankSet& others = {}) const;

 private:
  using Clock = std::chrono::steady_clock;
  // While it lives the calling thread uses the library, or waits for it. The watcher sees since
  // when.
  class InLibrary {
   public:
    using Since = std::atomic<Clock::rep>;
    explicit InLibrary(StreamCommunicator* of)
        : since_(of->in_library_since_), is_outermost_(Begin()), lock_(of->library_in_use_) {}
    ~InLibrary() {
      if (is_outermost_) since_ = 0;
    }
    InLibrary(const InLibrary&) = delete;
    InLibrary& operator=(const InLibrary&) = delete;

   private:
    bool Begin() {
      Clock::rep none = 0;
      return since_.compare_exchange_strong(none, Clock::now().time_since_epoch().count());
    }

    Since& since_;
    const bool is_outermost_;
    const std::lock_guard<std::recursive_mutex> lock_;
  };
  double InLibraryS() const;

  Status NoteDevice();
  // AsyncError() with the calls that may be meant.
  Status CheckHealth();
  // Lets go of all; whether all calls are known to have ended, which is waited for.
  bool Release();
  Status CheckPeers(const char* name, bool is_step, const RankSet& needed = {});
  // Checks that a call may be put on its stream: its peers, and what the ranks agree on.
  Status Prepare(const char* name, const Agreement* agreement, const RankSet& needed);
  Status NoStream(const char* name);
  // The board's agreement, or a refusal that every rank hears of; the group lives on.
  Status Come(const Agreement& agreement, const Status& own);
  // Refuses what cannot be done for a captured call.
  Status CheckCapture(const char* name, const Agreement* agreement, void* stream);
  // Ok, or why some of these ranks, or these and others, cannot make a new group.
  Status CheckMeetsAnew(const char* name) const;
  bool IsIdle();
  Status FindProgress(DeviceRuntime::Progress* progress, std::string* ahead);
  void PublishCallsEnded();
  void WaitForStreams(double limit_s);
  void AwaitIdle(double limit_s);
  // What this rank would be refused and its peers would not hear of: a tag, any source, a message
  // to itself that nothing receives.
  Status CheckTransfers(const char* name, const char* library, const Transfer* list,
                        int count) const;
  Status FindTrouble(const std::optional<double>& waiting_s);
  bool Hurts(const std::optional<double>& waiting_s) const;

  const DeviceKind kind_;
  const bool compares_;
  CallsInFlight calls_;
  DeviceShare share_;                  // once the ranks have met
  std::atomic<int> device_index_{-1};  // -1: not known before first contact
  std::recursive_mutex closing_;       // recursive: a signal handler of the thread may close, too
  // Held while the library is used, by a call or by Ask().
  std::recursive_mutex library_in_use_;
  InLibrary::Since in_library_since_{0};
  bool is_watched_ = false;
  std::optional<Clock::time_point> trouble_since_;  // of Look()
  // What Ask() has found last, and when it began.
  mutable std::mutex shown_mutex_;
  std::string shown_ahead_;
  Clock::time_point shown_at_;
  MessagesUnderWay under_way_;
  std::set<uint64_t> prepared_;  // the keys of PrepareTogether()
  std::unique_ptr<kernels::StreamCompute> compute_;
};

// The watcher of this process looks at the communicator every 100 ms, and asks it, until Forget().
// The first one starts the watcher's threads, which sleep while there is none, and end with the
// process. Thread-safe.
void Watch(StreamCommunicator* communicator);
// On return nobody looks at it or asks it, nor will. Waits for a Look() or Ask() that runs.
// Thread-safe; not from inside either.
void Forget(StreamCommunicator* communicator);

// The Control of a communicator that the library connects, on one host or several, which has no
// board if the spec says so; or `of_caller`, on a handle of the caller's, with a board only to
// compare calls. `compares`: COLLOPS_CHECK=1.
Status MakeControl(control::GroupSpec spec, bool of_caller,
                   std::shared_ptr<control::Control>* control, bool* compares);

template <typename Step>
Status StreamCommunicator::RunOnDevice(const char* name, Step&& step) {
  Status found = device_index_ < 0 ? NoteDevice() : Ok();
  if (found.ok()) {
    const InLibrary use(this);
    Status result;
    found = OnDevice(device_index_, [&result, &step] { result = step(); });
    if (found.ok()) return result;
  }
  return Decline(name, InCall(name, found));
}

template <typename Step>
Status StreamCommunicator::Enqueue(const char* name, const Agreement* agreement, void* stream,
                                   KeepAlive keep, Step&& step, const RankSet& needed) {
  if (stream == nullptr) return NoStream(name);
  return RunOnDevice(name, [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(CheckCapture(name, agreement, stream));
    COLLOPS_RETURN_IF_ERROR(MeetOnce(name));
    COLLOPS_RETURN_IF_ERROR(Prepare(name, agreement, needed));
    const Status status = step(&keep);
    // Also after a failed step: its first part may be on the stream.
    const Status kept = calls_.Keep(stream, std::move(keep), name, UserCall::Number());
    return InCall(name, status.ok() ? kept : status);
  });
}

// Nothing compares messages, not even with COLLOPS_CHECK=1: only two ranks take part.
template <typename Step>
Status StreamCommunicator::EnqueueMessages(const char* name, const char* library, Transfer* list,
                                           int count, void* stream, Step&& step) {
  const Status check = CheckTransfers(name, library, list, count);
  if (!check.ok()) return control().KeepGroupAfter(check);
  if (count == 0) return Ok();  // there is no tensor to find a stream by
  RankSet peers = RankSet::None(size());
  for (int i = 0; i < count; ++i) peers.Add(list[i].peer);
  COLLOPS_RETURN_IF_ERROR(Enqueue(
      name, nullptr, stream, under_way_.Begin(list, count), [&](KeepAlive*) { return step(); },
      peers));
  for (int i = 0; i < count; ++i) {
    if (list[i].way == Transfer::kRecv) list[i].source = list[i].peer;
  }
  return Ok();
}

template <typename Step>
Status StreamCommunicator::EnqueueBarrier(const Agreement& agreement, void* stream, Step&& step) {
  const bool waits = control().has_board() || stream == nullptr;
  if (waits) COLLOPS_RETURN_IF_ERROR(control().Agree(agreement));
  if (stream == nullptr) return Ok();
  return Enqueue(agreement.called(), nullptr, stream, nullptr, [&](KeepAlive*) { return step(); });
}

}  // namespace collops
