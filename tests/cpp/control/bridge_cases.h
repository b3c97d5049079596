// Cases for ranks of several hosts, whatever joins their boards: the conformance cases that need no
// data, and what only several hosts have.
#pragma once

#include "conformance/error_cases.h"
#include "conformance/group_cases.h"
#include "control/hosts.h"
#include "run_call.h"

namespace hosts {

using namespace conformance;

inline const double kTimeoutS = check::Patience(30);
// Ranks 0 and 1 on host 0, 2 and 3 on host 1.
const HostOf kTwoByTwo = {0, 0, 1, 1};

inline bool RunCase(Hosts& hosts, const Case& test, int variant) {
  const int before = check::Failures();
  std::memset(static_cast<void*>(&Shared()), 0, sizeof(Common));
  OnHosts(hosts, test.timeout_s,
          [&](int rank, Communicator& comm) { test.body(rank, variant, comm); });
  ExpectOneText(hosts.size());
  if (check::Failures() == before) return true;
  std::printf("  in: %s, variant %d\n", test.name, variant);
  return false;
}

inline void Steps(int rank, int, Communicator& comm) {
  for (int i = 0; i < 60; ++i) {
    const int refuser = static_cast<int>(Hash(i, 3) % 12);
    const Kind kind = i % 3 == 0 ? Kind::kShare : Kind::kBarrier;
    if (rank == refuser) {
      EXPECT_EQ(comm.Refuse("an operator", Error(ERROR_INVALID_PARAM, "no")).message(), "");
    } else if (refuser < comm.size()) {
      EXPECT_CONTAINS(Try(kind, comm).message(), RankText(refuser) + "100");
    } else if (i % 4 == 0) {
      ShareBytes(rank, 0, comm);
    } else {
      EXPECT_EQ(Try(kind, comm).message(), "");
    }
  }
}

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline void ExpectLost(const Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), text);
}

// Rank 0 ends its step and leaves while rank 1, whose watcher it runs, has yet to end that step,
// and rank 2 on the other host waits for rank 1. With `fails` rank 0 leaves because of a failure in
// its next step, before which all steps are complete.
inline void LeaveBeforeItsHost(Hosts& hosts, bool fails) {
  OnHosts(hosts, kTimeoutS, [fails](int rank, Communicator& comm) {
    const Agreement agreement("a step");
    control::Step* step = nullptr;
    const Status status = RunCall(ControlOf(comm), "a step", [&]() -> Status {
      step = &ControlOf(comm).step();
      COLLOPS_RETURN_IF_ERROR(step->Begin(agreement, kTimeoutS));
      step->Publish();
      COLLOPS_RETURN_IF_ERROR(step->AwaitAll());
      const control::Member& relay = step->endpoint().board().member(0);
      while (rank == 1 && relay.left.load() == 0) std::this_thread::yield();
      // Longer than a watcher lives that does not wait for its host.
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return rank == 2 ? step->EndTogether() : step->End();
    });
    EXPECT_EQ(status.message(), "");
    if (rank != 0 || !fails) return;
    const Status failure = RunCall(ControlOf(comm), "the next step", [&]() -> Status {
      COLLOPS_RETURN_IF_ERROR(step->Begin(agreement, kTimeoutS));
      return Error(ERROR_OUT_OF_HOST_MEMORY, "no room");
    });
    EXPECT_EQ(failure.message(), "no room");
  });
}

// Any rank of that host may be the one that is named.
inline void ExpectHostLost(const Status& status, int host) {
  const auto text = [](int rank) {
    return RankText(rank) + std::to_string(1000 + rank) + "): the connection to its host is lost: ";
  };
  const bool first = status.message().find(text(2 * host)) != std::string::npos;
  ExpectLost(status, text(first ? 2 * host : 2 * host + 1));
}

// The conformance cases of failing calls, and the collectives of Control alone.
inline std::vector<Case> ControlCases() {
  std::vector<Case> cases = ErrorCases();
  cases.push_back({"Barrier", {}, 1, kTimeoutS, Barriers});
  cases.push_back({"Share", {}, 1, kTimeoutS, ShareBytes});
  cases.push_back({"steps", {}, 1, kTimeoutS, Steps});
  return cases;
}
// Of an error case: calls that Control alone makes.
inline std::vector<int> VariantsOf(const Case& test) {
  if (test.variants == 1) return {0};
  return {static_cast<int>(Kind::kBarrier), static_cast<int>(Kind::kShare)};
}

inline void EndAProcess(Hosts& hosts, int ended) {
  std::atomic<int> met{0};
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    if (rank == ended) {
      AwaitCount(met, hosts.size());
      hosts.EndProcess(rank);
      AwaitCount(met, 2 * hosts.size() - 1);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string who = RankText(ended) + std::to_string(1000 + ended) + ")";
    ExpectLost(comm.Barrier(), who + " exited without reporting an error");
    EXPECT_TRUE(SecondsSince(start) < kTimeoutS / 2);
    ++met;
  });
}

// Of two hosts of two ranks.
inline void CutTheConnection(Hosts& hosts) {
  std::atomic<int> met{0};
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    AwaitCount(met, hosts.size());
    if (rank == 3) hosts.wire().Cut();
    if (rank == 3) ++met;
    AwaitCount(met, hosts.size() + 1);
    ExpectHostLost(comm.Barrier(), 1 - hosts.HostOfRank(rank));
  });
}

// No rank waits between calls: the board must be up to date when it is read.
inline void LookWhileComputing(Hosts& hosts) {
  std::atomic<int> met{0};
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    AwaitCount(met, hosts.size());
    if (rank == 3) return comm.Abort("it has seen enough");
    Status status;
    const auto start = std::chrono::steady_clock::now();
    while (status.ok() && SecondsSince(start) < kTimeoutS) status = ControlOf(comm).Peek("Barrier");
    EXPECT_EQ(status.code(), ERROR_ABORTED);
    EXPECT_CONTAINS(status.message(), "rank 3 aborted: it has seen enough");
  });
}

// The watcher of host 1 is stopped: rank 3, whose state it sends, must still be named.
inline void StopAWatcher(Hosts& hosts, bool from_the_start) {
  std::atomic<int> met{0};
  std::atomic<int> done{0};
  if (from_the_start) hosts.wire().Stop(1);
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    if (!from_the_start) EXPECT_EQ(comm.Barrier().message(), "");
    comm.set_timeout_s(2.5);
    ++met;
    AwaitCount(met, hosts.size());
    if (rank == 2) hosts.wire().Stop(1);
    if (rank == 2) ++met;
    AwaitCount(met, hosts.size() + 1);
    const Status status = comm.Barrier();
    EXPECT_EQ(status.code(), ERROR_TIMEOUT);
    const char* const that = rank < 2 ? "that" : "this";
    EXPECT_CONTAINS(status.message(), std::string("on another host (rank 2 (pid 1002), which ") +
                                          "speaks for " + that + " host, has been silent for ");
    if (++done == hosts.size()) hosts.wire().GoOn(1);
  });
}

// A watcher that is stopped for a while delays calls and causes no error.
inline void StopWatchersForAWhile(Hosts& hosts) {
  std::atomic<int> done{0};
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    for (int i = 0; i < 5; ++i) {
      if (rank == 1) hosts.wire().Stop(i % 2);
      std::thread waker;
      if (rank == 1) {
        waker = std::thread([&hosts, i] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          hosts.wire().GoOn(i % 2);
        });
      }
      Steps(rank, 0, comm);
      if (waker.joinable()) waker.join();
    }
    ++done;
    AwaitCount(done, hosts.size());
  });
}

}  // namespace hosts
