#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "collops/comm/control/tcp/fields.h"
#include "collops/core/status.h"

namespace collops::control::tcp {

// What a rank wants at the job's port, as the purpose of its Claim says.
constexpr const char* kRegister = "register";  // rank 0 of a domain: where it listens
constexpr const char* kFind = "find";          // another rank: where that is
constexpr const char* kLeave = "leave";        // any rank: it will not come

// What it says there, once both ends have proven themselves.
struct Said {
  pid_t pid = 0;
  uint64_t meeting = 0;  // which first contact of its domain this is in its process
  std::string address;   // where rank 0 listens, and its port
  int port = 0;
  Status reason;  // why it leaves

  Frame frame() const;
  // False if it is no such frame.
  static bool Read(const Frame& frame, Said* said);
};

// The answers.
enum class Answer {
  kRegistered = 1,
  kMeetAt = 2,   // an address and a port
  kVerdict = 3,  // first contact ends, and why
};

Frame RegisteredFrame();
Frame MeetAtFrame(const std::string& address, int port);
Frame RefusalFrame(const Status& reason);

struct Told {
  Answer answer = Answer::kRegistered;
  std::string address;
  int port = 0;
  Status reason;

  static bool Read(const Frame& frame, Told* told);
};

}  // namespace collops::control::tcp
