#include "collops/comm/streams/stream_communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "collops/core/deadline.h"
#include "collops/core/env.h"
#include "collops/core/process/interrupt.h"

namespace collops {

namespace {

// How long the destructor waits for calls. A caller that needs longer calls Close() first.
constexpr double kDestroyedS = 2.0;
// How long the device has to say that calls have ended, when a rank is lost, or the time is up.
constexpr std::chrono::seconds kAnswers(1);
// How long calls have to end by themselves when their group is shrunk.
constexpr double kMomentS = 1.0;
// A call that waits for the other ranks ends by its own time-out, a little before the watcher's.
constexpr double kOwnWait = 1.0;

}  // namespace

StreamCommunicator::StreamCommunicator(std::shared_ptr<control::Control> control, DeviceKind kind,
                                       bool compares, kernels::DeviceRuntime* runtime)
    : BackendCommunicator(std::move(control)),
      kind_(kind),
      compares_(compares),
      calls_(runtime),
      under_way_(size()) {
  this->control().SetCallsOnStreams(0);
}

void StreamCommunicator::Finish() {
  if (!control().Inherited() && is_watched_) Forget(this);
  WaitForStreams(kDestroyedS);
  control().Close("it closed its communicator");
  Close("it closed its communicator");
}

// Control's errors in first contact begin with its name already.
Status StreamCommunicator::InCall(const char* name, const Status& status) {
  const std::string begin = Concat(name, ": ");
  if (status.ok() || status.message().compare(0, begin.size(), begin) == 0) return status;
  return Error(status.code(), begin, status.message());
}

Status StreamCommunicator::NoteDevice() {
  int device = spec().device;
  if (device < 0) COLLOPS_RETURN_IF_ERROR(FindDevice(&device));
  device_index_ = device;
  return Ok();
}

Status StreamCommunicator::CheckHealth() {
  const Status status = AsyncError();
  if (status.ok()) return Ok();
  const std::string calls = calls_.NamesAhead();
  return Error(status.code(), "an earlier call failed", calls.empty() ? "" : ", ", calls, ": ",
               status.message());
}

// A product asks for its sizes before first contact, and the device may have been chosen since this
// was made. An error is reported in first contact.
kernels::StreamCompute* StreamCommunicator::stream_compute() {
  if (device_index_ < 0) static_cast<void>(NoteDevice());
  return compute_.get();
}

Status StreamCommunicator::DoConnect() {
  return RunOnDevice(kFirstContact, [&] { return MeetOnce(kFirstContact); });
}

Status StreamCommunicator::KeepOnStream(const char* name, void* stream, KeepAlive kept) {
  return RunOnDevice(
      name, [&] { return calls_.Keep(stream, std::move(kept), name, UserCall::Number()); });
}

// A call of several steps: compared as a whole, if calls are compared.
Status StreamCommunicator::DoAgree(const Agreement& agreement) {
  return RunOnDevice(agreement.called(), [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(MeetOnce(agreement.called()));
    COLLOPS_RETURN_IF_ERROR(CheckPeers(agreement.called(), compares_));
    return compares_ ? control().Agree(agreement) : Ok();
  });
}

Status StreamCommunicator::Come(const Agreement& agreement, const Status& own) {
  if (!control().has_board()) return own.ok() ? own : control().KeepGroupAfter(own);
  if (own.ok()) return control().Agree(agreement);
  COLLOPS_RETURN_IF_ERROR(control().Refuse(agreement.called(), own));
  return control().KeepGroupAfter(own);
}

Status StreamCommunicator::DoAgreeOnHost(const Agreement& agreement, const Status& own,
                                         void* stream) {
  const char* const name = agreement.called();
  return RunOnDevice(name, [&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(MeetOnce(name));
    COLLOPS_RETURN_IF_ERROR(CheckPeers(name, control().has_board()));
    bool is_captured = false;
    Status ready = own;
    if (ready.ok()) ready = InCall(name, calls_.FindCapture(stream, &is_captured));
    if (ready.ok() && is_captured) {
      ready = Error(ERROR_INVALID_STREAM, name,
                    ": the stream is captured, and the numbers of rows are read when the call is "
                    "made: a graph would repeat those of this call");
    }
    return Come(agreement, ready);
  });
}

Status StreamCommunicator::DoCheck() {
  return RunOnDevice("check", [&] { return CheckPeers("check", false); });
}

// Before the work all calls that the ranks have made are on their streams, so that their kernels
// end; after it no rank's next kernel waits for a rank that still works.
Status StreamCommunicator::PrepareTogether(const Agreement& agreement, uint64_t key, void* stream,
                                           const std::function<Status()>& work) {
  if (!share_.in_one_context || prepared_.count(key) > 0) return Ok();
  const char* const name = agreement.called();
  return RunOnDevice(name, [&]() -> Status {
    bool is_captured = false;
    Status ready = calls_.FindCapture(stream, &is_captured);
    if (ready.ok() && is_captured) {
      ready = Error(ERROR_INVALID_STREAM, name,
                    ": the stream is captured, and this is the first call of these sizes, which "
                    "loads kernels while the ranks of a GPU wait: run it once before capturing");
    }
    COLLOPS_RETURN_IF_ERROR(Come(agreement, ready));
    COLLOPS_RETURN_IF_ERROR(Come(agreement, InCall(name, work())));
    prepared_.insert(key);
    return Ok();
  });
}

Status StreamCommunicator::MeetOnce(const char* name) {
  if (connected()) return Ok();
  const uint64_t step = control().step_number();
  const Status met = control().WithOthersPending(InCall(name, Meet()));
  if (met.ok()) control().MarkMet();
  if (met.ok() && EndsByAbort() && !std::exchange(is_watched_, true)) Watch(this);
  // Rank 0 may fail before the others hear of this rank.
  const bool others_know = !control().has_board() || control().step_number() != step;
  return met.ok() || others_know ? met : Decline(name, met);
}

// Tells the other ranks why this rank refuses: in the exchange of first contact, later in the
// comparison of the call. Without comparisons the others may have put their call on a stream, so
// the group ends, and their next call has the reason. What the library cannot do is refused on all
// ranks alike, and ends nothing.
Status StreamCommunicator::DoRefuse(const char* name, const Status& reason) {
  if (!control().has_board()) return Ok();
  if (!connected()) return control().Refuse(kFirstContact, reason);
  if (compares_) return control().Refuse(name, reason);
  if (reason.code() == ERROR_UNSUPPORTED) return Ok();
  control().EndAll(
      Error(ERROR_RANK_MISMATCH, name, ": rank ", rank(), " refused its part: ", reason.message()));
  return Ok();
}

Status StreamCommunicator::Decline(const char* name, const Status& reason) {
  const Status refused = DoRefuse(name, reason);
  if (!refused.ok()) static_cast<void>(control().Fail(refused, control().step_number()));
  return control().KeepGroupAfter(reason);
}

Status StreamCommunicator::NoStream(const char* name) {
  return Decline(name, Error(ERROR_INVALID_STREAM, name, ": there is no stream: pass ",
                             kind_ == DeviceKind::kNpu ? "NPU" : "CUDA", " tensors, or stream="));
}

Status StreamCommunicator::CheckCapture(const char* name, const Agreement* agreement,
                                        void* stream) {
  const bool meets = !connected();
  const bool compares = compares_ && agreement != nullptr && ComparesReplays();
  if (!meets && !compares) return Ok();
  bool is_captured = false;
  const Status found = calls_.FindCapture(stream, &is_captured);
  if (!found.ok()) return Decline(name, InCall(name, found));
  if (!is_captured) return Ok();
  const char* const why =
      meets ? ": the stream is captured, and the ranks connect in their first call: make one call "
              "before the capture"
            : ": the stream is captured, and COLLOPS_CHECK=1 cannot compare what a graph replays: "
              "capture without it, as the GPUs compare each replay";
  return Decline(name, Error(ERROR_INVALID_STREAM, name, why));
}

Status StreamCommunicator::CheckTransfers(const char* name, const char* library,
                                          const Transfer* list, int count) const {
  std::vector<const Transfer*> own[2];
  for (int i = 0; i < count; ++i) {
    const Transfer& transfer = list[i];
    COLLOPS_CHECK_ARG(transfer.tag == 0, ERROR_UNSUPPORTED, name, ": ", library,
                      " has no tags: use tag 0, got ", transfer.tag);
    COLLOPS_CHECK_ARG(transfer.peer != kAnySource, ERROR_UNSUPPORTED, name, ": ", library,
                      " cannot receive from any rank: pass the source's");
    if (transfer.peer == rank()) own[transfer.way].push_back(&transfer);
  }
  const auto& [sends, receives] = own;
  COLLOPS_CHECK_ARG(sends.size() == receives.size(), ERROR_INVALID_PARAM, name, ": this rank ",
                    rank(), " sends ", sends.size(), " messages to itself and receives ",
                    receives.size(), " from itself: on a stream they must be in one call");
  for (size_t i = 0; i < sends.size(); ++i) {
    COLLOPS_CHECK_ARG(
        sends[i]->bytes == receives[i]->bytes && sends[i]->dtype == receives[i]->dtype,
        ERROR_INVALID_PARAM, name, ": message ", i, " of this rank ", rank(), " to itself has ",
        sends[i]->elements, " elements of ", Name(sends[i]->dtype), ", but ", receives[i]->elements,
        " of ", Name(receives[i]->dtype), " are received");
  }
  return Ok();
}

// Without waiting: whether all ranks are still there and all earlier calls have succeeded.
Status StreamCommunicator::CheckPeers(const char* name, bool is_step, const RankSet& needed) {
  const uint64_t step = control().step_number() + 1;
  const uint64_t call = is_step ? CallNumber(step) : UserCall::Number();
  COLLOPS_RETURN_IF_ERROR(control().Peek(name, call, needed));
  return InCall(name, CheckHealth());
}

// A group call is counted before its peers are checked, so that a rank is missed that left without
// it; one that was refused was made by no rank.
Status StreamCommunicator::Prepare(const char* name, const Agreement* agreement,
                                   const RankSet& needed) {
  const uint64_t before = control().calls_on_streams();
  if (agreement != nullptr) control().SetCallsOnStreams(before + 1);
  const bool is_step = compares_ && agreement != nullptr;
  Status status = CheckPeers(name, is_step, needed);
  if (status.ok() && is_step) {
    status = control().Agree(*agreement);
    // A rank whose call compared equal may have failed since.
    if (status.ok()) return CheckPeers(name, is_step, needed);
  }
  if (!status.ok()) control().SetCallsOnStreams(before);
  return status;
}

// How long a call has used the library, or waited for it; 0: none does.
double StreamCommunicator::InLibraryS() const {
  const Clock::rep since = in_library_since_;
  if (since == 0) return 0;
  const Clock::duration used = Clock::now().time_since_epoch() - Clock::duration(since);
  return std::chrono::duration<double>(used).count();
}

// A failure, a rank that is lost, a call that is on its stream, or waits there, for longer than the
// time-out, or one that has not come back from the library for as long.
Status StreamCommunicator::FindTrouble(const std::optional<double>& waiting_s) {
  if (control().failed()) return control().Failure();
  const double timeout_s = control().timeout_s();
  const double age_s = calls_.KnownAge();
  std::string name;
  {
    const std::lock_guard<std::mutex> lock(shown_mutex_);
    name = shown_ahead_;
  }
  const bool is_known = age_s > 0 || InLibraryS() > 0;
  if (name.empty()) name = is_known ? "an earlier call" : "a call that a graph replays";
  COLLOPS_RETURN_IF_ERROR(control().Peek(name.c_str(), 0, under_way_.Peers()));
  COLLOPS_CHECK_ARG(age_s <= timeout_s && waiting_s.value_or(0) <= timeout_s, ERROR_TIMEOUT, name,
                    ": timed out on its stream after ", timeout_s,
                    " s: a rank has not made this call, or the stream waits");
  COLLOPS_CHECK_ARG(InLibraryS() <= timeout_s + kOwnWait, ERROR_TIMEOUT,
                    age_s > 0
                        ? Concat(name, ": timed out after ", timeout_s, " s: the next call has")
                        : Concat("timed out after ", timeout_s, " s: this call has"),
                    " not come back from the device's library, in which it may wait for a rank");
  return Ok();
}

// Whether trouble takes something away from this rank: a call waits for it, or may be replayed. The
// device may know that a call has ended which the host takes to be under way, so it is asked first;
// if it does not answer, something waits there.
bool StreamCommunicator::Hurts(const std::optional<double>& waiting_s) const {
  if (waiting_s.has_value()) return true;
  const Clock::duration lasted = Clock::now() - *trouble_since_;
  const bool has_lasted = lasted > kAnswers;
  if (calls_.KnownAge() > 0 || InLibraryS() > 0) {
    const std::lock_guard<std::mutex> lock(shown_mutex_);
    return has_lasted || (calls_.KnownAge() > 0 && shown_at_ > *trouble_since_);
  }
  // A rank that has just left may have ended its part of a replay that is still at work here.
  return has_lasted && calls_.has_graphs();
}

// A rank that is lost when all was done takes nothing away from this one. But a captured call may
// be replayed, and would wait for that rank for ever.
void StreamCommunicator::Look() {
  if (!connected()) return;
  const std::optional<double> waiting_s = WaitingS();
  const Status trouble = FindTrouble(waiting_s);
  if (trouble.ok()) {
    trouble_since_.reset();
    return;
  }
  if (!trouble_since_.has_value()) trouble_since_ = Clock::now();
  if (!Hurts(waiting_s)) return;
  if (!control().failed()) control().EndAll(trouble);
  AbortCalls();
}

void StreamCommunicator::Ask() {
  const std::unique_lock<std::recursive_mutex> lock(library_in_use_, std::try_to_lock);
  if (!lock.owns_lock() || !connected()) return;
  const Clock::time_point begin = Clock::now();
  AllowCaptures();
  Status broken;
  std::string ahead;
  const Status reached = OnDevice(device_index_, [&] {
    broken = InCall("watcher", DeviceError());
    ahead = calls_.NamesAhead();
  });
  if (broken.ok()) broken = reached;
  if (!broken.ok() && !control().failed()) control().EndAll(broken);
  const std::lock_guard<std::mutex> shown(shown_mutex_);
  shown_ahead_ = std::move(ahead);
  shown_at_ = begin;
}

void StreamCommunicator::OnLeave() {
  WaitForStreams(control().timeout_s());
}

// Whether all calls have ended, or their state cannot be asked any more.
bool StreamCommunicator::IsIdle() {
  const InLibrary use(this);
  if (calls_.empty()) return true;
  bool idle = true;
  static_cast<void>(
      OnDevice(device_index_, [&] { idle = calls_.Reap() != DeviceRuntime::Progress::kAhead; }));
  return idle;
}

// A rank that leaves before its calls have ended takes its part of them away from slower ranks, so
// it stays until then, or until a rank is lost that they wait for, or the group has failed.
void StreamCommunicator::WaitForStreams(double limit_s) {
  if (control().Inherited() || !control().has_board()) return;
  const std::lock_guard<std::recursive_mutex> lock(closing_);
  static_cast<void>(control().Alone("Close", [&] {
    AwaitIdle(limit_s);
    return Ok();
  }));
}

void StreamCommunicator::AwaitIdle(double limit_s) {
  const Deadline deadline = Deadline::After(limit_s);
  bool idle = IsIdle();
  while (!idle && !control().failed() && control().Peek("Close", 0, under_way_.Peers()).ok() &&
         !deadline.Passed() && !Interrupted()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    idle = IsIdle();
  }
  if (!idle || control().failed()) return;
  control().MarkStreamsEnded();
  if (connected()) PublishCallsEnded();
}

Status StreamCommunicator::CheckMeetsAnew(const char* name) const {
  COLLOPS_CHECK_ARG(control().has_board() && !IsHandedIn(), ERROR_UNSUPPORTED, name, ": backend ",
                    spec().backend,
                    ": a communicator that was handed in is its owner's to replace: hand in the "
                    "new one");
  for (int r = 0; r < size(); ++r) {
    COLLOPS_CHECK_ARG(!control().endpoint().IsRemote(r), ERROR_UNSUPPORTED, name, ": backend ",
                      spec().backend, " has it on one host only yet: make a new communicator in ",
                      "each process, with its new rank and rank_size");
  }
  return Ok();
}

// Where nothing ends the library's wait for a new process that ends, the old group would wait, too.
Status StreamCommunicator::CheckGrows() const {
  return EndsByAbort() ? CheckMeetsAnew("grow") : BackendCommunicator::CheckGrows();
}

// How far this rank's calls have come; an error if the device cannot be asked.
Status StreamCommunicator::FindProgress(DeviceRuntime::Progress* progress, std::string* ahead) {
  const InLibrary use(this);
  *progress = DeviceRuntime::Progress::kReached;
  if (calls_.empty()) return Ok();
  return OnDevice(device_index_, [&] {
    *progress = calls_.Reap();
    *ahead = calls_.NamesAhead();
  });
}

bool StreamCommunicator::HaveAllCallsEnded(const RankSet& others) const {
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || others.Contains(r)) continue;
    if (!control().endpoint().HaveCallsEnded(r)) return false;
  }
  return true;
}

// A moment for this rank's calls, which may wait for a rank that has not made them, such as one
// that is excluded; and one for those of ranks that are a little behind, which end with the group.
void StreamCommunicator::AwaitCalls(double limit_s, const RankSet& excluded) {
  AwaitIdle(std::min(limit_s, kMomentS));
  if (!control().streams_ended()) return;
  PublishCallsEnded();
  const Deadline moment = Deadline::After(kMomentS);
  while (!HaveAllCallsEnded(excluded) && !moment.Passed() && !control().failed() &&
         control().Peek("shrink").ok() && !Interrupted()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What all ranks have begun ends by itself, and has a moment for it. Captured graphs that are
// replayed later wait for nobody.
Status StreamCommunicator::EndCalls(const Deadline& deadline) {
  if (!connected()) return Ok();
  const char* const advice =
      EndsByAbort() ? "" : "; nothing ends it: end this process, or stop and restart its device";
  const Deadline by_itself = Deadline::After(kMomentS);
  auto progress = DeviceRuntime::Progress::kAhead;
  std::string ahead;
  COLLOPS_RETURN_IF_ERROR(FindProgress(&progress, &ahead));
  while (progress == DeviceRuntime::Progress::kAhead) {
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "shrink: rank ", rank(), " was interrupted");
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "shrink: ", ahead,
                      " did not end on its stream within ", deadline.timeout_s(), " s", advice);
    if (!EndsByAbort()) {
      const Status failed = CheckHealth();
      COLLOPS_CHECK_ARG(failed.ok(), failed.code(), "shrink: ", failed.message(), advice);
    } else if (by_itself.Passed()) {
      AbortCalls();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    COLLOPS_RETURN_IF_ERROR(FindProgress(&progress, &ahead));
  }
  COLLOPS_CHECK_ARG(progress == DeviceRuntime::Progress::kReached, ERROR_RT_FAIL, "shrink: ", ahead,
                    " has failed, and the runtime does not say whether it has ended: end this "
                    "process");
  AbortCalls();
  PublishCallsEnded();
  return Ok();
}

// Not where graphs are left: what replays them writes to the peers' memory.
void StreamCommunicator::PublishCallsEnded() {
  if (!calls_.has_graphs()) control().endpoint().PublishCallsEnded();
}

bool StreamCommunicator::Release() {
  if (!connected() && calls_.empty()) {
    LetGo(true);
    return true;
  }
  bool past = false;
  const Status reached = OnDevice(device_index_, [&] {
    past = calls_.Drain(Deadline::After(Patience())).ok();
    LetGo(past);
  });
  if (!reached.ok()) LetGo(false);
  return past;
}

void StreamCommunicator::OnClose() {
  if (control().Inherited()) return;
  const std::lock_guard<std::recursive_mutex> lock(closing_);
  // If a call runs in another thread, it still needs the library; the destructor releases it.
  if (control().in_call()) return;
  const InLibrary use(this);
  const bool past = Release();
  if (past && compute_ != nullptr) compute_->Release();
  if (spec().engine_part != nullptr) {
    std::static_pointer_cast<PartInSpec>(spec().engine_part)->reset();
  }
}

Status MakeControl(control::GroupSpec spec, bool of_caller,
                   std::shared_ptr<control::Control>* control, bool* compares) {
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  *compares = env.check;
  if (of_caller) spec.timeout_s = env.timeout_s;
  if (of_caller ? env.check : !spec.has_no_board) {
    const auto reach = of_caller ? control::Reach::kOneHost : control::Reach::kHosts;
    return control::Control::Create(spec, 0, control, reach);
  }
  *control = std::make_shared<control::Control>(spec);
  return Ok();
}

}  // namespace collops
