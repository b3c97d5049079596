#include "comm/registry.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "comm/backends/backend_table.h"
#include "kernels/isa.h"

namespace collops {
namespace {

std::atomic<Registry*> instance{nullptr};

// What a process had made before it forked, as its child sees it. Kept but never touched: closing
// or destroying it would tell the peers that the rank, which is the parent, has left.
std::atomic<Registry*> inherited{nullptr};

void ForgetInChild() {
  Registry* const parents = instance.exchange(nullptr);
  if (parents != nullptr) inherited.store(parents);
}

bool Threads(const CommunicatorSpec& spec) {
  return spec.comm_mode == COMM_MULTI_THREAD;
}

using Communicators = std::map<std::string, std::shared_ptr<Communicator>>;

// Ranks that are threads of this process each have a communicator of their own. Only the domain may
// hold a slash, so it comes last.
std::string Key(const CommunicatorSpec& spec) {
  const std::string owner = Threads(spec) ? std::to_string(spec.rank) : "process";
  return Concat(spec.backend, "/", owner, "/", spec.comm_domain);
}

// Takes out what is never handed out again.
std::vector<std::shared_ptr<Communicator>> TakeFailed(Communicators* communicators) {
  std::vector<std::shared_ptr<Communicator>> failed;
  for (auto it = communicators->begin(); it != communicators->end();) {
    if (it->second->failed()) {
      failed.push_back(std::move(it->second));
      it = communicators->erase(it);
    } else {
      ++it;
    }
  }
  return failed;
}

// Whether both can live in one process: the same group, or two groups that do not touch.
Status CheckAgreement(const CommunicatorSpec& live, const CommunicatorSpec& wanted) {
  if (live.backend != wanted.backend || live.comm_domain != wanted.comm_domain) return Ok();
  const auto disagree = [&](const char* field, int is, int asked) {
    return Error(ERROR_INVALID_PARAM, "commDomain \"", live.comm_domain, "\" of backend ",
                 live.backend, " is live in this process with ", field, " ", is, ", got ", asked,
                 ": pass the same value, or another commDomain");
  };
  if (live.comm_mode != wanted.comm_mode) {
    return disagree("commMode", live.comm_mode, wanted.comm_mode);
  }
  if (live.rank_size != wanted.rank_size) {
    return disagree("rankSize", live.rank_size, wanted.rank_size);
  }
  if (live.rank != wanted.rank && !Threads(live)) return disagree("rank", live.rank, wanted.rank);
  return Ok();
}

Status FindRunnable(const std::string& name, const Backend** backend) {
  *backend = FindBackend(name);
  CHECK_ARG(*backend != nullptr, ERROR_INVALID_PARAM, "backend \"", name, "\" is not known");
  return (*backend)->available();
}

}  // namespace

Registry& Registry::Instance() {
  // Made at first use, so that at exit it goes before the static objects that were there already.
  static const bool prepared = [] {
    return pthread_atfork(nullptr, nullptr, ForgetInChild) == 0 &&
           std::atexit([] { delete instance.exchange(nullptr); }) == 0;
  }();
  static_cast<void>(prepared);
  Registry* registry = instance.load();
  if (registry != nullptr) return *registry;
  Registry* const fresh = new Registry;
  if (instance.compare_exchange_strong(registry, fresh)) return *fresh;
  delete fresh;  // another thread was first
  return *registry;
}

Registry::~Registry() {
  CloseAll("the process ended");
}

Status Registry::Get(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const Backend* backend = nullptr;
  RETURN_IF_ERROR(FindRunnable(spec.backend, &backend));
  RETURN_IF_ERROR(kernels::CheckIsa());
  std::unique_lock<std::mutex> lock(mutex_);
  // Let go before the new one is made, which may need the same address, and without the lock.
  for (auto failed = TakeFailed(&communicators_); !failed.empty();
       failed = TakeFailed(&communicators_)) {
    lock.unlock();
    failed.clear();
    lock.lock();
  }
  for (const auto& [key, live] : communicators_) {
    RETURN_IF_ERROR(CheckAgreement(live->spec(), spec));
  }
  std::shared_ptr<Communicator>& slot = communicators_[Key(spec)];
  if (slot == nullptr) {
    const Status status = backend->create(spec, &slot);
    if (!status.ok()) {
      communicators_.erase(Key(spec));
      return status;
    }
  }
  made_[slot.get()] = slot;
  *communicator = slot;
  return Ok();
}

Status Registry::FromHandle(const void* handle, std::shared_ptr<Communicator>* communicator) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, candidate] : communicators_) {
    // Compared as an address only: whatever number the caller passed is never followed.
    if (static_cast<const void*>(candidate.get()) != handle) continue;
    CHECK_ARG(!candidate->failed(), ERROR_INVALID_PARAM, "hcclComm ", handle,
              ": the communicator of commDomain \"", candidate->spec().comm_domain,
              "\" has failed or was closed: make a new one");
    *communicator = candidate;
    return Ok();
  }
  return Error(ERROR_INVALID_PARAM, "hcclComm ", handle,
               " is no live communicator of this process: pass the handle of one that is open, or "
               "leave it null");
}

// Also of one that has failed and was let go of here: its address is no engine's handle.
bool Registry::IsOurs(const void* handle) {
  for (auto it = made_.begin(); it != made_.end();) {
    it = it->second.expired() ? made_.erase(it) : std::next(it);
  }
  return made_.count(handle) > 0;
}

Status Registry::Adopt(void* handle, const std::string& backend,
                       std::shared_ptr<Communicator>* communicator) {
  const Status known = FromHandle(handle, communicator);
  const Backend* const row = FindBackend(backend);
  if (known.ok() || row == nullptr || row->adopt == nullptr) return known;
  RETURN_IF_ERROR(row->available());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (IsOurs(handle)) return known;
  std::weak_ptr<Communicator>& adopted = adopted_[handle];
  std::shared_ptr<Communicator> live = adopted.lock();
  if (live == nullptr || live->failed()) RETURN_IF_ERROR(row->adopt(handle, &live));
  adopted = live;
  *communicator = std::move(live);
  return Ok();
}

void Registry::CloseAll(const std::string& reason) {
  Communicators closing;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing.swap(communicators_);
    for (const auto& [handle, adopted] : adopted_) {
      const std::shared_ptr<Communicator> live = adopted.lock();
      if (live != nullptr) closing[Key(live->spec())] = live;
    }
  }
  // By domain, the same order in every rank.
  for (const auto& [key, communicator] : closing) {
    if (!communicator->failed()) communicator->Close(reason);
  }
}

}  // namespace collops
