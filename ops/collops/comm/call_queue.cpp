#include "collops/comm/call_queue.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

#include "collops/comm/pairs/messenger.h"
#include "collops/core/process/interrupt.h"
#include "collops/core/trace/spans.h"

namespace collops {
namespace {

// How often a wait looks for an interrupt.
constexpr std::chrono::milliseconds kNap(20);
// For how long the queue's thread leaves a call to the thread that may soon wait for it, if that
// has happened with the calls before. Two switches of threads take 5 to 50 us.
constexpr std::chrono::microseconds kGrace(200);

}  // namespace

thread_local CallQueue* CallQueue::running_here_ = nullptr;

CallQueue::CallQueue(control::Control* control) : control_(control) {
  control->set_overdue([this] { return Overdue(); });
}

void CallQueue::SetMessenger(Messenger* messenger) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    messenger_ = messenger;
  }
  messenger->set_wake([this] { Wake(); });
}

// Locks the mutex, because a thread that is about to sleep has checked with the mutex locked.
void CallQueue::Wake() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  work_.notify_one();
}

Status CallQueue::Add(const StartedHandle& call) {
  Lock lock(mutex_);
  if (calling_ && !RunsHere()) return control_->SecondThread(call->name);
  ForgetEnded(&lock);
  if (control_->failed() || stopped_) {
    lock.unlock();
    return control_->CheckUsable(call->name);
  }
  COLLOPS_RETURN_IF_ERROR(HaveThread(call->name));
  call->done = false;
  call->added_at = std::chrono::steady_clock::now();
  waiting_.push_back(call);
  has_waiting_.store(true);
  if (!napping_ && !runs_) work_.notify_one();
  if (messenger_ != nullptr) messenger_->WakeSleeper();
  return Ok();
}

Status CallQueue::LookAfterMessages(const char* name) {
  Lock lock(mutex_);
  if (!control_->failed() && !stopped_) return HaveThread(name);
  lock.unlock();
  return control_->CheckUsable(name);
}

Status CallQueue::HaveThread(const char* name) {
  if (thread_.joinable()) return Ok();
  try {
    thread_ = std::thread([this] { Work(); });
  } catch (const std::system_error& error) {
    return Error(ERROR_OUT_OF_HOST_MEMORY, name, ": cannot create a thread for the calls ",
                 "that are started (", error.what(), "): make the call without start");
  }
  return Ok();
}

Status CallQueue::Wait(StartedCall* call, double timeout_s) {
  Lock lock(mutex_);
  if (timeout_s > 0 && !call->done) call->limit_s = timeout_s;
  COLLOPS_CHECK_ARG(call->done || !RunsHere(), ERROR_INVALID_PARAM, call->name,
                    ": a started call cannot wait for a call that comes after it");
  {
    const recording::WaitSpan wait("wait for a started call");
    while (!call->done) Advance(&lock, call->name);
  }
  const Status outcome = call->outcome;
  const std::function<Status()> body = std::exchange(call->body, nullptr);
  ForgetEnded(&lock);
  lock.unlock();  // destroy what the body captured without the mutex
  return outcome;
}

bool CallQueue::Done(const StartedCall& call) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call.done;
}

double CallQueue::Overdue() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (current_ == nullptr || current_->limit_s <= 0) return 0;
  const std::chrono::duration<double> ran = std::chrono::steady_clock::now() - current_->begun_at;
  return ran.count() > current_->limit_s ? current_->limit_s : 0;
}

void CallQueue::Advance(Lock* lock, const char* name) {
  if (!runs_ && !waiting_.empty()) {
    ++run_by_waiters_;
    RunHead(lock);
    if (!napping_ && !waiting_.empty()) work_.notify_one();
    return;
  }
  changed_.wait_for(*lock, kNap);
  lock->unlock();
  if (Interrupted()) {
    control_->EndAll(
        Error(ERROR_ABORTED, name, ": rank ", control_->spec().rank, " was interrupted"));
  }
  lock->lock();
}

void CallQueue::RunHead(Lock* lock) {
  const StartedHandle call = std::move(waiting_.front());
  waiting_.pop_front();
  has_waiting_.store(!waiting_.empty());
  current_ = call;
  runs_ = true;
  call->begun_at = std::chrono::steady_clock::now();
  lock->unlock();
  CallQueue* const outer = std::exchange(running_here_, this);
  // A call that begins after the group has failed gets the group's failure.
  const Status outcome = control_->failed() ? control_->Failure() : call->body();
  running_here_ = outer;
  const bool failed = control_->failed();
  const Status failure = failed ? control_->Failure() : Ok();
  lock->lock();
  runs_ = false;
  current_ = nullptr;
  End(call.get(), outcome);
  ended_.push_back(call);
  if (failed) {
    EndAll(failure);
    work_.notify_one();
  }
  changed_.notify_all();
}

void CallQueue::End(StartedCall* call, const Status& outcome) {
  call->outcome = outcome;
  call->done = true;
}

void CallQueue::EndAll(const Status& outcome) {
  for (const StartedHandle& call : waiting_) {
    End(call.get(), outcome);
    ended_.push_back(call);
  }
  waiting_.clear();
  has_waiting_.store(false);
}

// Called in a thread of the user's, in which destructors may run.
void CallQueue::ForgetEnded(Lock* lock) {
  if (ended_.empty()) return;
  std::vector<StartedHandle> ended;
  ended.swap(ended_);
  lock->unlock();
  ended.clear();
  lock->lock();
}

bool CallQueue::IsOver() const {
  if (stopped_) return true;
  const bool messages = messenger_ != nullptr && messenger_->NeedsAttention();
  return control_->failed() && waiting_.empty() && !messages;
}

bool CallQueue::HeadIsNew() const {
  return !waiting_.empty() &&
         std::chrono::steady_clock::now() - waiting_.front()->added_at < kGrace;
}

void CallQueue::Sleep(Lock* lock) {
  if (run_by_waiters_ == seen_run_by_waiters_) return work_.wait(*lock);
  seen_run_by_waiters_ = run_by_waiters_;
  napping_ = true;
  while (work_.wait_for(*lock, kGrace) == std::cv_status::timeout && HeadIsNew()) {
  }
  napping_ = false;
}

void CallQueue::Work() {
  // Signals go to the user's threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  Lock lock(mutex_);
  while (!IsOver()) {
    if (!runs_ && !waiting_.empty()) {
      RunHead(&lock);
      continue;
    }
    Messenger* const messenger = messenger_;
    if (messenger == nullptr || !messenger->NeedsAttention()) {
      Sleep(&lock);
      continue;
    }
    lock.unlock();
    const Status attended = control::Control::Catch("Send and Recv", [&] {
      messenger->Attend([this] {
        const std::lock_guard<std::mutex> again(mutex_);
        return stopped_ || (!runs_ && !waiting_.empty());
      });
      return Ok();
    });
    if (!attended.ok()) control_->EndAll(attended);
    lock.lock();
  }
}

void CallQueue::Stop() {
  Messenger* messenger = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    messenger = messenger_;
  }
  changed_.notify_all();
  work_.notify_one();
  if (messenger != nullptr) messenger->WakeSleeper();
  {
    const std::lock_guard<std::mutex> join(join_mutex_);
    const bool here = thread_.get_id() == std::this_thread::get_id();
    if (thread_.joinable() && !here) thread_.join();
  }
  const Status failure = control_->Failure();
  Lock lock(mutex_);
  EndAll(failure);
  changed_.notify_all();
  ForgetEnded(&lock);
}

CallQueue::Caller::Caller(CallQueue* queue) : queue_(queue) {
  const std::lock_guard<std::mutex> lock(queue->mutex_);
  alone_ = !queue->calling_.exchange(true);
}

CallQueue::Caller::~Caller() {
  if (alone_) queue_->calling_.store(false, std::memory_order_release);
}

CallQueue::Turn::Turn(CallQueue* queue, const char* name) : queue_(queue) {
  Lock lock(queue->mutex_);
  if (queue->calling_) {
    status_ = queue->control_->SecondThread(name);
    return;
  }
  queue->calling_.store(true, std::memory_order_relaxed);
  queue->ForgetEnded(&lock);
  {
    const recording::WaitSpan wait("wait for started calls");
    while (queue->runs_ || !queue->waiting_.empty()) queue->Advance(&lock, name);
  }
  queue->runs_.store(true, std::memory_order_relaxed);
  outer_ = std::exchange(running_here_, queue);
}

CallQueue::Turn::~Turn() {
  if (!status_.ok()) return;
  running_here_ = outer_;
  queue_->calling_.store(false, std::memory_order_release);
  queue_->runs_.store(false);
  // If no call waits, the queue's thread can go on sleeping.
  if (queue_->has_waiting_.load()) queue_->Wake();
}

}  // namespace collops
