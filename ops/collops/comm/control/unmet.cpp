#include "collops/comm/control/unmet.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "collops/core/process/per_process.h"
#include "collops/core/status.h"

namespace collops::control {
namespace {

struct Groups {
  std::mutex mutex;
  std::set<const Unmet*> all;
};
PerProcess<Groups> groups_here;

}  // namespace

Unmet::Unmet(const CommunicatorSpec& spec) : rank_(spec.rank), comm_domain_(spec.comm_domain) {
  Groups& groups = groups_here.Get();
  const std::lock_guard<std::mutex> lock(groups.mutex);
  groups.all.insert(this);
}

Unmet::~Unmet() {
  Groups& groups = groups_here.Get();
  const std::lock_guard<std::mutex> lock(groups.mutex);
  groups.all.erase(this);
}

std::string Unmet::Others() const {
  std::set<std::string> names;
  Groups& groups = groups_here.Get();
  const std::lock_guard<std::mutex> lock(groups.mutex);
  for (const Unmet* other : groups.all) {
    // Ranks that are threads have a process in common.
    if (other->rank_ != rank_ || other->comm_domain_ == comm_domain_) continue;
    names.insert(Concat("\"", other->comm_domain_, "\""));
  }
  if (names.empty()) return "";
  std::string list;
  for (const std::string& name : names) list += Concat(list.empty() ? "" : ", ", name);
  return Concat(
      "; this is comm_domain \"", comm_domain_, "\", and ", list,
      " of this rank has not met either: ranks that share several make their first calls ",
      "in the same order");
}

}  // namespace collops::control
