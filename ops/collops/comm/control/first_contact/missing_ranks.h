#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/port_messages.h"
#include "collops/comm/rank_set.h"

namespace collops::control {

// What the job's port has told of others.
struct PortHearsay {
  std::vector<std::string> turned_away;  // the last ones
  std::map<int, std::string> asked;      // by rank, where it is

  void Take(const PortNews& news);
};

// Where a process is, in messages: "node3, 10.0.0.3", or the address alone.
std::string HostText(const std::string& name, const std::string& address);

// What is known of the ranks that have not come, as the end of a message: where the rank table
// places them (`hosts`, by rank; empty: there is none), who was turned away, and who has asked for
// rank 0 and did not come. Empty: nothing; each part begins with "; ".
constexpr size_t kMostKnownBytes = 768;
std::string DescribeMissing(const RankSet& present, const std::vector<std::string>& hosts,
                            const PortHearsay& hearsay);

}  // namespace collops::control
