#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
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
#include "collops/comm/streams/stream_engine.h"
#include "collops/comm/user_calls.h"
#include "collops/core/status.h"
#include "collops/kernels/stream_compute.h"

namespace collops {

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
// calls are compared there first. A backend derives from this class and from StreamEngine, and
// adds the calls themselves. Thread-safety as in Communicator; waits in first contact, in
// comparisons, and in Close() until the calls have ended.
class StreamCommunicator : public BackendCommunicator {
 public:
  Device device() const override { return {kind_, device_index_}; }
  DeviceShare device_share() const override { return engine_->device_share(); }
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
  // `engine` is owned from here on. `compares`: COLLOPS_CHECK=1.
  StreamCommunicator(std::shared_ptr<control::Control> control, DeviceKind kind, bool compares,
                     std::unique_ptr<StreamEngine> engine);
  // For the destructor of a derived class, whose functions a call of Close() needs.
  void Finish();

  // The products and sums of the device, for stream_compute(); set by the derived class.
  void SetCompute(std::unique_ptr<kernels::StreamCompute> compute) {
    compute_ = std::move(compute);
  }

  StreamEngine& engine() { return *engine_; }
  const std::atomic<int>& device_index() const { return device_index_; }

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
  // Refuses with an error of this rank alone.
  Status Decline(const char* name, const Status& reason);
  // The error with the call's name in front, unless it is there already.
  static Status InCall(const char* name, const Status& status);

  bool ConnectsInEngine() const override { return true; }
  Status DoConnect() override;
  Status DoAgree(const Agreement& agreement) override;
  Status DoCheck() override;
  Status DoRefuse(const char* name, const Status& reason) override;
  void OnLeave() override;
  void OnClose() override;

 private:
  using Clock = std::chrono::steady_clock;
  // While it lives the calling thread uses the engine, or waits for it. The watcher sees since
  // when.
  class InEngine {
   public:
    using Since = std::atomic<Clock::rep>;
    explicit InEngine(StreamCommunicator* of)
        : since_(of->in_engine_since_), is_outermost_(Begin()), lock_(of->engine_in_use_) {}
    ~InEngine() {
      if (is_outermost_) since_ = 0;
    }
    InEngine(const InEngine&) = delete;
    InEngine& operator=(const InEngine&) = delete;

   private:
    bool Begin() {
      Clock::rep none = 0;
      return since_.compare_exchange_strong(none, Clock::now().time_since_epoch().count());
    }

    Since& since_;
    const bool is_outermost_;
    const std::lock_guard<std::recursive_mutex> lock_;
  };
  double InEngineS() const;

  Status FindDevice();
  Status CheckPeers(const char* name, bool is_step, const RankSet& needed = {});
  // Checks that a call may be put on its stream: its peers, and what the ranks agree on.
  Status Prepare(const char* name, const Agreement* agreement, const RankSet& needed);
  Status NoStream(const char* name);
  // Refuses what cannot be done for a captured call.
  Status CheckCapture(const char* name, const Agreement* agreement, void* stream);
  bool IsIdle();
  void WaitForStreams(double limit_s);
  // What this rank would be refused and its peers would not hear of: a tag, any source, a message
  // to itself that nothing receives.
  Status CheckTransfers(const char* name, const char* library, const Transfer* list,
                        int count) const;
  Status FindTrouble(const std::optional<double>& waiting_s);
  bool Hurts(const std::optional<double>& waiting_s) const;

  const DeviceKind kind_;
  const bool compares_;
  const std::unique_ptr<StreamEngine> engine_;
  std::atomic<int> device_index_{-1};  // -1: not known before first contact
  std::recursive_mutex closing_;       // recursive: a signal handler of the thread may close, too
  // Held while the engine is used, by a call or by Ask().
  std::recursive_mutex engine_in_use_;
  InEngine::Since in_engine_since_{0};
  bool is_watched_ = false;
  std::optional<Clock::time_point> trouble_since_;  // of Look()
  // What Ask() has found last, and when it began.
  mutable std::mutex told_mutex_;
  std::string told_ahead_;
  Clock::time_point told_;
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
// board if the spec says so; `compares`: COLLOPS_CHECK=1.
Status MakeControl(const control::GroupSpec& spec, std::shared_ptr<control::Control>* control,
                   bool* compares);
// That of one on a handle of the caller's, which has a board only to compare calls.
Status MakeControlOfCaller(const CommunicatorSpec& spec, std::shared_ptr<control::Control>* control,
                           bool* compares);

template <typename Step>
Status StreamCommunicator::RunOnDevice(const char* name, Step&& step) {
  Status found = device_index_ < 0 ? FindDevice() : Ok();
  if (found.ok()) {
    const InEngine use(this);
    Status result;
    found = engine_->OnDevice(device_index_, [&result, &step] { result = step(); });
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
    const Status kept = engine_->calls().Keep(stream, std::move(keep), name, UserCall::Number());
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
