#pragma once

#include <cstddef>
#include <string>

// Sockets with deadlines. A name with a colon is an IPv4 address and a port; any other is an
// abstract AF_UNIX name, which only processes of one host (and one network namespace) can reach.
namespace collops_sim {

// Seconds of a clock that only goes forward.
double Now();
// The seconds in an environment variable.
double Limit(const char* variable, double fallback);

// COLLOPS_SIM_HOST_IP or HCCL_IF_IP: the address of this host; empty if neither is set.
std::string HostAddress();
// A name that is not taken yet: a port of `host`, or an abstract name where that is empty. -1 if
// the address is none of this host's.
int ListenAnywhere(const std::string& host, std::string* name);
// -1 if the name is taken or its address is none of this host's.
int Listen(const std::string& name);

// All are non-blocking; -1 after the deadline.
int AcceptUntil(int listener, double deadline);
int ConnectUntil(const std::string& name, double deadline);
bool WaitFor(int descriptor, short events, double deadline);
bool SendUntil(int peer, const void* data, size_t bytes, double deadline);
bool ReceiveUntil(int peer, void* data, size_t bytes, double deadline);

}  // namespace collops_sim
