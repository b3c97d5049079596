#include "collops/comm/registry.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/backends/backend_table.h"
#include "collops/comm/control/control.h"
#include "collops/comm/pairs/messenger.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/trace/recording.h"
#include "collops/kernels/isa.h"

namespace collops {
namespace {

// How long a rank waits for senders to read its verdicts before it leaves.
constexpr double kLastSettleS = 1.0;

std::atomic<Registry*> instance{nullptr};

// The parent's registry, as a child of fork() sees it. Never used: closing or destroying it would
// tell the peers that the rank, which is the parent, has left.
std::atomic<Registry*> inherited{nullptr};

void ForgetInChild() {
  Registry* const parents = instance.exchange(nullptr);
  if (parents != nullptr) inherited.store(parents);
}

// Registered when the library is loaded: at first use another thread might fork meanwhile.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, ForgetInChild);
std::atomic<bool> closes_at_exit{false};

bool Threads(const CommunicatorSpec& spec) {
  return spec.comm_mode == COMM_MULTI_THREAD;
}

using Communicators = std::map<std::string, std::shared_ptr<Communicator>>;

// Ranks that are threads of this process have a communicator each. A domain belongs to its job.
// Only the last two may contain a slash, and only the last one a line break.
std::string Key(const CommunicatorSpec& spec) {
  const std::string owner = Threads(spec) ? std::to_string(spec.rank) : "process";
  return Concat(spec.backend, "/", owner, "/", spec.comm_domain, "\n", spec.job_id);
}

// Whether both can exist in one process: the same group, or two groups without a common domain.
Status CheckAgreement(const CommunicatorSpec& live, const CommunicatorSpec& wanted) {
  if (live.backend != wanted.backend || live.comm_domain != wanted.comm_domain ||
      live.job_id != wanted.job_id) {
    return Ok();
  }
  const auto disagree = [&](const std::string& is, int asked) {
    return Error(ERROR_INVALID_PARAM, "this process already has a communicator ", is,
                 " (comm_domain \"", live.comm_domain, "\", backend ", live.backend, "), got ",
                 asked, ": close() it, or pass another comm_domain");
  };
  if (live.comm_mode != wanted.comm_mode) {
    return disagree(Concat("of comm_mode ", static_cast<int>(live.comm_mode)), wanted.comm_mode);
  }
  if (live.rank_size != wanted.rank_size) {
    return disagree(Concat("of ", live.rank_size, live.rank_size == 1 ? " rank" : " ranks"),
                    wanted.rank_size);
  }
  if (live.rank != wanted.rank && !Threads(live)) {
    return disagree(Concat("as rank ", live.rank), wanted.rank);
  }
  return Ok();
}

// Removes and returns the communicators for which `taken` returns true.
template <typename Taken>
std::vector<std::shared_ptr<Communicator>> Take(Communicators* communicators, Taken&& taken) {
  std::vector<std::shared_ptr<Communicator>> out;
  for (auto it = communicators->begin(); it != communicators->end();) {
    if (taken(it->second)) {
      out.push_back(std::move(it->second));
      it = communicators->erase(it);
    } else {
      ++it;
    }
  }
  return out;
}

// Whether nothing in this process uses it: no operation, no communicator of the caller's, no
// window. Only the registry owns it then, so its lock keeps it unused.
bool IsFree(const std::shared_ptr<Communicator>& live) {
  return live.use_count() == 1 && !live->HasWindows();
}

// Removes and returns communicators that are never used again: failed ones, and unused ones that
// conflict with `wanted`. Ranks that are threads stay together.
std::vector<std::shared_ptr<Communicator>> TakeEnded(Communicators* communicators,
                                                     const CommunicatorSpec& wanted) {
  auto ended = Take(communicators, [](const auto& live) { return live->failed(); });
  const auto in_the_way = [&wanted](const auto& live) {
    return !CheckAgreement(live->spec(), wanted).ok();
  };
  for (const auto& [key, live] : *communicators) {
    if (in_the_way(live) && !IsFree(live)) return ended;
  }
  for (auto& live : Take(communicators, in_the_way)) ended.push_back(std::move(live));
  return ended;
}

Status Ended(const void* handle, const Communicator& communicator) {
  return Error(ERROR_INVALID_PARAM, "hcclComm ", handle, ": the communicator of commDomain \"",
               communicator.spec().comm_domain, "\" has failed or was closed: make a new one");
}

// Whether a handle still belongs to the group for which a communicator was made.
bool SameGroup(const CommunicatorSpec& live, const CommunicatorSpec& found) {
  return live.rank == found.rank && live.rank_size == found.rank_size &&
         live.comm_domain == found.comm_domain;
}

Status FindRunnable(const std::string& name, const Backend** backend) {
  *backend = FindBackend(name);
  COLLOPS_CHECK_ARG(*backend != nullptr, ERROR_INVALID_PARAM, "backend \"", name,
                    "\" is not known");
  const Status available = (*backend)->available();
  // Structs have ATB's default "hccl", so a first program on a machine without NPUs comes here.
  if (available.ok() || std::strcmp((*backend)->memory, "cpu") == 0) return available;
  return Error(available.code(), available.message(),
               ": for CPU tensors pass backend=\"shm\", or set COLLOPS_BACKEND=shm");
}

}  // namespace

Registry& Registry::Instance() {
  // Registered at first use, so that at exit it runs before destructors of older static objects.
  if (!closes_at_exit.load() && !closes_at_exit.exchange(true)) {
    static_cast<void>(std::atexit([] { delete instance.exchange(nullptr); }));
  }
  Registry* registry = instance.load();
  if (registry != nullptr) return *registry;
  Registry* const fresh = new Registry;
  if (instance.compare_exchange_strong(registry, fresh)) return *fresh;
  delete fresh;  // another thread was first
  return *registry;
}

Registry::Registry() : parents_(inherited.load()) {}

Registry::~Registry() {
  CloseAll("the process ended");
}

Status Registry::Get(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  return Get(control::GroupSpec(spec), communicator);
}

Status Registry::Get(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const Backend* backend = nullptr;
  const Status runnable = FindRunnable(spec.backend, &backend);
  const bool is_missing = backend != nullptr && !runnable.ok();
  if (is_missing && backend->decline != nullptr) backend->decline(spec, runnable);
  COLLOPS_RETURN_IF_ERROR(runnable);
  COLLOPS_RETURN_IF_ERROR(kernels::CheckIsa());
  std::unique_lock<std::mutex> lock(mutex_);
  // Destroyed before the new one is made, which may need the same address, and without the lock.
  for (auto ended = TakeEnded(&communicators_, spec); !ended.empty();
       ended = TakeEnded(&communicators_, spec)) {
    lock.unlock();
    for (const auto& live : ended) {
      if (!live->failed()) live->Close("nothing in its process uses it any more");
      // Started calls own the tensors and, in Python, the communicator itself.
      live->EndStarted();
    }
    ended.clear();
    lock.lock();
  }
  for (const auto& [key, live] : communicators_) {
    COLLOPS_RETURN_IF_ERROR(CheckAgreement(live->spec(), spec));
  }
  std::shared_ptr<Communicator>& slot = communicators_[Key(spec)];
  if (slot == nullptr) {
    control::GroupSpec group(spec);
    group.check_table = [](const std::string& of, const RankTable& table) {
      return CheckTableFor(of, table, "");
    };
    const Status status = backend->create(group, &slot);
    if (!status.ok()) {
      communicators_.erase(Key(spec));
      return status;
    }
  }
  made_[slot.get()] = slot;
  *communicator = slot;
  return Ok();
}

Status Registry::CheckCurrent(const Communicator& old) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = communicators_.find(Key(old.spec()));
  // Where ranks are threads, a rank of a smaller group may have this one's number by now.
  const bool replaced = found != communicators_.end() && found->second.get() != &old &&
                        !found->second->failed() &&
                        (!Threads(old.spec()) || SameGroup(found->second->spec(), old.spec()));
  COLLOPS_CHECK_ARG(!replaced, ERROR_INVALID_PARAM, "shrink: this process has made another ",
                    "communicator of comm_domain \"", old.spec().comm_domain, "\" since: use that");
  return Ok();
}

Status Registry::CheckJoins(const CommunicatorSpec& spec) const {
  const Backend* backend = nullptr;
  COLLOPS_RETURN_IF_ERROR(FindRunnable(spec.backend, &backend));
  COLLOPS_RETURN_IF_ERROR(kernels::CheckIsa());
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = communicators_.find(Key(spec));
  // Where ranks are threads, any of them may be here.
  const bool taken = !Threads(spec) && found != communicators_.end() && !found->second->failed();
  COLLOPS_CHECK_ARG(!taken, ERROR_INVALID_PARAM, spec.voice.begin,
                    "this process already has a communicator of comm_domain \"", spec.comm_domain,
                    "\", as rank ", taken ? found->second->rank() : 0,
                    ": only another process can join it");
  return Ok();
}

Status Registry::MakeApart(const control::GroupSpec& spec,
                           std::shared_ptr<Communicator>* communicator) {
  const Backend* backend = nullptr;
  COLLOPS_RETURN_IF_ERROR(FindRunnable(spec.backend, &backend));
  return backend->create(spec, communicator);
}

Status Registry::Enter(std::shared_ptr<Communicator> made, const char* name,
                       std::shared_ptr<Communicator>* communicator) {
  const CommunicatorSpec& spec = made->spec();
  std::vector<std::shared_ptr<Communicator>> ended;  // destroyed without the lock
  std::unique_lock<std::mutex> lock(mutex_);
  // Where ranks are threads, one that was left out, or has not come as far, may not know yet that
  // its group has ended.
  ended = Take(&communicators_, [&](const auto& live) {
    if (live->failed()) return true;
    return !CheckAgreement(live->spec(), spec).ok() && !ControlOf(*live).Peek(name).ok();
  });
  std::shared_ptr<Communicator>& slot = communicators_[Key(spec)];
  if (slot == nullptr) slot = made;
  const bool entered = slot == made;
  if (entered) made_[slot.get()] = slot;
  lock.unlock();
  // One that may still complete the call in which it is learns the end of its group by its next
  // one.
  for (const auto& live : ended) {
    if (live->failed()) live->EndStarted();
  }
  if (!entered) {
    const Status other =
        Error(ERROR_INVALID_PARAM, name, ": another thread has made a communicator of comm_domain ",
              "\"", spec.comm_domain, "\" meanwhile: use that");
    made->Close(other.message());
    return other;
  }
  NoteRankSize(made->size());
  *communicator = std::move(made);
  return Ok();
}

void Registry::Forget(const Communicator* closed) {
  Registry* const registry = instance.load();  // null at the end of the process
  if (registry == nullptr) return;
  std::shared_ptr<Communicator> taken;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(registry->mutex_);
  const auto found = registry->communicators_.find(Key(closed->spec()));
  // Whoever closes it uses it, so it is not destroyed here.
  const bool ours = found != registry->communicators_.end() && found->second.get() == closed;
  if (!ours || found->second.use_count() == 1) return;
  taken = std::move(found->second);
  registry->communicators_.erase(found);
}

Status Registry::FromHandle(const void* handle, std::shared_ptr<Communicator>* communicator) {
  std::shared_ptr<Communicator> closed;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, candidate] : communicators_) {
    // Compared as an address only; the number that the caller passed is never dereferenced.
    if (static_cast<const void*>(candidate.get()) != handle) continue;
    if (candidate->failed()) return Ended(handle, *candidate);
    *communicator = candidate;
    return Ok();
  }
  const auto made = made_.find(handle);
  if (made != made_.end()) closed = made->second.lock();
  if (closed != nullptr) return Ended(handle, *closed);
  return Error(
      ERROR_INVALID_PARAM, "hcclComm ", handle,
      " is not an open communicator of this process: pass the handle of one that is open, or "
      "leave it null");
}

// Includes failed and destroyed communicators and those of a parent process: none is an engine's.
bool Registry::WasOurs(const void* handle) const {
  if (made_.count(handle) > 0) return true;
  if (parents_ == nullptr) return false;
  // If another thread of the parent held the lock at the fork, it is held for ever: try only.
  const std::unique_lock<std::mutex> lock(parents_->mutex_, std::try_to_lock);
  return lock.owns_lock() && parents_->WasOurs(handle);
}

// An engine may give a new group the handle of one that it has destroyed. The communicator of the
// old group would use the new one.
void Registry::CloseStale(const void* handle, const CommunicatorSpec& spec) {
  std::shared_ptr<Communicator> live;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = adopted_.begin(); it != adopted_.end();) {
      it = it->second.expired() ? adopted_.erase(it) : std::next(it);
    }
    const auto found = adopted_.find(handle);
    if (found != adopted_.end()) live = found->second.lock();
    if (live == nullptr || SameGroup(live->spec(), spec)) return;
    adopted_.erase(found);
  }
  live->Close("its hcclComm was destroyed, and another group has the handle now");
}

Status Registry::Adopt(void* handle, const std::string& backend, CommMode comm_mode,
                       std::shared_ptr<Communicator>* communicator) {
  const Status known = FromHandle(handle, communicator);
  const Backend* const row = FindBackend(backend);
  if (known.ok() || row == nullptr || row->adopt == nullptr) return known;
  COLLOPS_RETURN_IF_ERROR(row->available());
  std::shared_ptr<Communicator> live;  // destroyed without the lock
  std::unique_lock<std::mutex> lock(mutex_);
  if (WasOurs(handle)) return known;
  lock.unlock();
  CommunicatorSpec spec;
  spec.backend = backend;
  spec.comm_mode = comm_mode;
  COLLOPS_RETURN_IF_ERROR(row->describe(handle, &spec));
  CloseStale(handle, spec);
  lock.lock();
  std::weak_ptr<Communicator>& adopted = adopted_[handle];
  live = adopted.lock();
  std::shared_ptr<Communicator> made;
  if (live == nullptr || live->failed()) COLLOPS_RETURN_IF_ERROR(row->adopt(spec, handle, &made));
  if (made != nullptr) adopted = made;
  lock.unlock();
  *communicator = made != nullptr ? std::move(made) : std::move(live);
  return Ok();
}

void Registry::CloseAll(const std::string& reason) {
  // Adopted communicators may share a key: only the engine knows their ranks, which may be threads.
  std::multimap<std::string, std::shared_ptr<Communicator>> closing;
  std::vector<std::shared_ptr<Communicator>> ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing.insert(communicators_.begin(), communicators_.end());
    communicators_.clear();
    for (const auto& [handle, adopted] : adopted_) {
      std::shared_ptr<Communicator> live = adopted.lock();
      if (live != nullptr) closing.emplace(Key(live->spec()), std::move(live));
    }
    for (const auto& [address, made] : made_) {
      std::shared_ptr<Communicator> live = made.lock();
      if (live != nullptr && live->failed()) ended.push_back(std::move(live));
    }
  }
  // By domain: the same order in every rank.
  for (const auto& [key, communicator] : closing) {
    if (!communicator->failed()) communicator->Close(reason);
  }
  // They may still have a thread.
  for (const auto& live : ended) live->EndStarted();
}

void Communicator::Close(const std::string& reason) {
  Leave(reason, false);
}

void Communicator::Leave(const std::string& reason, bool goes_on) {
  BackendCommunicator& group = backend();
  group.OnLeave();
  // A peer that sees this rank leave takes messages without a verdict for lost.
  const bool connected =
      group.connected_.load(std::memory_order_acquire) && !group.control_->Inherited();
  if (connected && group.messenger_ != nullptr) group.messenger_->SettleAll(kLastSettleS);
  group.control_->Close(reason, goes_on ? control::kGoesOn : control::kClosed);
  EndStarted();
  group.OnClose();
  Registry::Forget(this);
  if (recording::On()) recording::Flush();
}

Status CheckTableFor(const std::string& backend, const RankTable& table, const std::string& soc) {
  const Backend* const row = FindBackend(backend);
  if (row != nullptr && row->soc != nullptr) {
    return CheckDeviceRules(table, soc.empty() ? row->soc() : soc);
  }
  COLLOPS_RETURN_IF_ERROR(table.format_fault);
  return backend == "shm" || backend == "cuda" ? CheckOneHost(backend, table) : Ok();
}

}  // namespace collops
