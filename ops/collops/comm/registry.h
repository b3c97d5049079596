#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "collops/comm/communicator.h"

namespace [[gnu::visibility("default")]] collops {

namespace control {
struct GroupSpec;
}  // namespace control

struct RankTable;

// The communicators of this process, one per comm_domain and backend. The registry owns them until
// they are closed, the process ends, or they have failed and another one is asked for, so
// operations need no new first contact. Thread-safe; waits for no other rank.
class Registry {
 public:
  static Registry& Instance();

  // The open communicator of spec's domain, or a new one whose first contact has begun.
  // ERROR_INVALID_PARAM if the domain is open with another rank, rankSize or commMode; but if
  // nothing uses that communicator any more (no operation, no communicator of the caller's, no
  // window), it is closed, and the ranks meet again.
  Status Get(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator);
  // As Get(), of a group that another one makes.
  Status Get(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator);

  // When a group is shrunk or grows. CheckCurrent(): an error if `old` is no more its domain's
  // communicator, as another one was made since. CheckJoins(): an error if this process can be no
  // new rank of spec's domain. MakeApart(): one that is no domain's yet; Enter() makes it its
  // domain's, once the group before has ended, or closes it; `name` is the call's, for messages.
  Status CheckCurrent(const Communicator& old) const;
  Status CheckJoins(const CommunicatorSpec& spec) const;
  Status MakeApart(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator);
  Status Enter(std::shared_ptr<Communicator> made, const char* name,
               std::shared_ptr<Communicator>* communicator);

  // The open communicator that a caller passed as `hcclComm`; an error for any other number.
  Status FromHandle(const void* handle, std::shared_ptr<Communicator>* communicator);

  // As FromHandle(); but a handle that was never one of this library's is taken for one of the
  // backend's engine, if there is one, and gets a communicator that lives as long as it is used.
  Status Adopt(void* handle, const std::string& backend, CommMode comm_mode,
               std::shared_ptr<Communicator>* communicator);

  // Called by a communicator that has been closed: the registry owns it no longer, so what it holds
  // goes with its last user. FromHandle() knows it until then.
  static void Forget(const Communicator* closed);

  // Closes every communicator; the other ranks get `reason`. Called when the process ends.
  void CloseAll(const std::string& reason);

 private:
  Registry();
  ~Registry();

  bool WasOurs(const void* handle) const;
  void CloseStale(const void* handle, const CommunicatorSpec& spec);

  Registry* const parents_;  // of the process that forked this one, or null
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Communicator>> communicators_;
  // All communicators that were ever made, by address. A weak pointer keeps the memory block of
  // make_shared, so no engine's handle gets the address of a destroyed one.
  std::map<const void*, std::weak_ptr<Communicator>> made_;
  std::map<const void*, std::weak_ptr<Communicator>> adopted_;  // keyed by the caller's handle
};

// An error if a backend refuses a rank table that was read and is complete: by its engine's own
// rules, by those of the format that this engine does not know, or because all its ranks must be on
// one host. The engine's are those of the chip `soc`, or without one of this machine's.
Status CheckTableFor(const std::string& backend, const RankTable& table, const std::string& soc);

}  // namespace collops
