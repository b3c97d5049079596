#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/connection.h"
#include "collops/core/status.h"

namespace collops::control {

// What a rank says at the job's port, once both ends have proven themselves, and the answer: that
// rank 0 is known now (`reason` is Ok and `port` 0), where it listens, or why first contact ends.
struct PortMessage {
  pid_t pid = 0;         // of the rank; 0: an answer
  uint64_t meeting = 0;  // which first contact of its domain this is in its process
  std::string address;   // where rank 0 listens, and its port
  int port = 0;
  Status reason;  // why it leaves

  Frame frame() const;
  // False if it is no such frame.
  static bool Read(const Frame& frame, PortMessage* message);
};

// What the job's port tells those who wait there, unasked: whom it has turned away, and, to rank 0
// of a domain, that a rank has asked for it.
struct PortNews {
  static constexpr size_t kMostTexts = 4;
  static constexpr size_t kMostTextBytes = 256;

  std::vector<std::string> turned_away;  // the last ones
  int rank = -1;                         // who has asked, and where it is; -1: nobody
  std::string where;

  Frame frame() const;
  // False if it is no such frame. Its texts are in one line.
  static bool Read(const Frame& frame, PortNews* news);
};

}  // namespace collops::control
