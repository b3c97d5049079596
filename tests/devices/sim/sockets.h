#pragma once

#include <atomic>
#include <cstddef>
#include <string>

// Sockets with deadlines, which end early when `*stopped` is set. A name with a colon is an IPv4
// address and a port; any other is an abstract AF_UNIX name of this host (and network namespace).
namespace collops_sim {

double Now();

struct Until {
  double deadline;
  const std::atomic<bool>* stopped;

  bool IsOver() const { return *stopped || Now() > deadline; }
};

// The seconds in an environment variable.
double Limit(const char* variable, double fallback);

// -1 if the name is taken or its address is none of this host's.
int Listen(const std::string& name);
// A name that is not taken yet: a port of `host`, or an abstract name where that is empty. -1 if
// the address is none of this host's.
int ListenAnywhere(const std::string& host, std::string* name);

// All are non-blocking; -1 or false when the time is over or the other end is gone.
int Accept(int listener, const Until& until);
int Connect(const std::string& name, const Until& until);
bool Send(int peer, const void* data, size_t bytes, const Until& until);
bool Receive(int peer, void* data, size_t bytes, const Until& until);
// Waits for one of the descriptors' events, some milliseconds at most.
struct Wished {
  int descriptor;
  short events;
};
void WaitAMoment(const Wished* wished, size_t count);

}  // namespace collops_sim
