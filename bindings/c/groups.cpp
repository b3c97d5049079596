#include "c/groups.h"

#include <pthread.h>

#include <atomic>
#include <iterator>
#include <utility>

#include "collops/comm/registry.h"

namespace collops::c {
namespace {

std::atomic<Groups*> instance{nullptr};
// A child of fork() has none of its parent's communicators.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { instance.store(nullptr); });

}  // namespace

Groups& Groups::Instance() {
  Groups* groups = instance.load();
  if (groups != nullptr) return *groups;
  auto fresh = std::make_unique<Groups>();
  if (instance.compare_exchange_strong(groups, fresh.get())) return *fresh.release();
  return *groups;  // another thread was first
}

Status Groups::Find(const char* method, const collops_comm* handle, InUse* use) {
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(handle);
  if (known != groups_.end()) {
    use->group = known->second;
    use->communicator = use->group->communicator.lock();
    if (use->communicator != nullptr) return Ok();
  }
  const Status found = Registry::Instance().FromHandle(handle, &use->communicator);
  COLLOPS_CHECK_ARG(found.ok(), ERROR_INVALID_PARAM, method, ": comm ",
                    static_cast<const void*>(handle),
                    " is not an open communicator of this library in this process: pass what ",
                    "collops_init() gave, or Communicator.handle of Python's");
  use->group = Add(use->communicator);
  return Ok();
}

collops_comm* Groups::Keep(const std::shared_ptr<Communicator>& made) {
  const std::lock_guard lock(mutex_);
  const auto handle = reinterpret_cast<collops_comm*>(made.get());
  const auto known = groups_.find(handle);
  (known != groups_.end() ? known->second : Add(made))->owner = made;
  return handle;
}

void Groups::Drop(const collops_comm* handle) {
  std::shared_ptr<Group> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(handle);
  if (known == groups_.end()) return;
  dropped = std::move(known->second);
  groups_.erase(known);
}

std::shared_ptr<Group> Groups::Add(const std::shared_ptr<Communicator>& communicator) {
  for (auto it = groups_.begin(); it != groups_.end();) {
    it = it->second->communicator.expired() ? groups_.erase(it) : std::next(it);
  }
  auto group = std::make_shared<Group>(communicator);
  groups_[reinterpret_cast<const collops_comm*>(communicator.get())] = group;
  return group;
}

}  // namespace collops::c
