#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "comm/communicator.h"

namespace collops {

// The communicators of this process, one per comm_domain and backend. It owns them until they are
// closed, fail, or the process ends, so operations may come and go without a new first contact.
// Thread-safe; waits for no one.
class Registry {
 public:
  static Registry& Instance();

  // The live communicator of spec's domain, or a new one whose first contact has begun.
  // ERROR_INVALID_PARAM when the domain is live with another rank, rankSize or commMode.
  Status Get(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator);

  // The live communicator that a caller passed as `hcclComm`; an error for any other number.
  Status FromHandle(const void* handle, std::shared_ptr<Communicator>* communicator);

  // The same; and a handle that is none of ours is taken for one of the backend's engine, where it
  // has such, and gets a communicator that lives as long as somebody uses it.
  Status Adopt(void* handle, const std::string& backend,
               std::shared_ptr<Communicator>* communicator);

  // Closes every communicator: the others learn `reason`. Called when the process ends.
  void CloseAll(const std::string& reason);

 private:
  Registry() = default;
  ~Registry();

  bool IsOurs(const void* handle);

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Communicator>> communicators_;
  std::map<const void*, std::weak_ptr<Communicator>> made_;     // by their own address
  std::map<const void*, std::weak_ptr<Communicator>> adopted_;  // by the caller's handle
};

}  // namespace collops
