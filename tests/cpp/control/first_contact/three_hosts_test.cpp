// Three hosts: frames of different connections have no order, so an effect may arrive before its
// cause, in every way that delays can bring about.
#include <random>

#include "control/bridge_cases.h"
#include "control/first_contact/tcp_wire.h"

namespace {

using namespace hosts;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// One connection is slow, in one direction.
Wire::Delay Slow(int from, int to) {
  return [from, to](int f, int t) {
    return f == from && t == to ? microseconds(milliseconds(15)) : microseconds(0);
  };
}

// A rank ends a step that all ranks have begun, also if another one has just given it up: no host
// can know that at once. Where one that is on the same host must know, these cases have one result.
bool IsFor(const Case& test, const HostOf& host_of) {
  const size_t last = host_of.size() - 1;
  const std::string name = test.name;
  if (name == "time-out") return host_of[last - 1] == host_of[last];
  return name != "abort from a thread" || host_of[0] == host_of[1];
}

}  // namespace

TEST(ControlIsTheSameOnThreeHostsWithOneSlowConnection) {
  for (const HostOf& host_of : {HostOf{0, 1, 2}, HostOf{0, 0, 1, 2, 2}}) {
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        if (from == to) continue;
        for (const Case& test : ErrorCases()) {
          if (!IsFor(test, host_of)) continue;
          Hosts hosts(std::make_shared<Wire>(3, Slow(from, to)), host_of);
          if (RunCase(hosts, test, static_cast<int>(Kind::kBarrier))) continue;
          std::printf("  slow from host %d to host %d, %d ranks\n", from, to, hosts.size());
        }
      }
    }
  }
}

TEST(ControlIsTheSameOnThreeHostsWithDelays) {
  std::mt19937 random(1);
  const auto delay = [&random](int, int) { return microseconds(random() % 2000); };
  for (const HostOf& host_of : {HostOf{0, 0, 1, 2}, HostOf{0, 1, 1, 2, 2}}) {
    for (const Case& test : ControlCases()) {
      if (!IsFor(test, host_of)) continue;
      for (const int variant : VariantsOf(test)) {
        Hosts hosts(std::make_shared<Wire>(3, delay), host_of);
        RunCase(hosts, test, variant);
      }
    }
  }
}
