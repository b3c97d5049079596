// Failing calls of any backend: which rank gets which error, what is written, and whether the group
// can go on.
#pragma once

#include "conformance/attempt.h"
#include "run_call.h"

namespace conformance {

using namespace collops;

inline std::string RankText(int rank) {
  return "rank " + std::to_string(rank) + " (pid ";
}

inline Status RefuseOnce(const std::string& reason, Communicator& comm) {
  const Status why = Error(ERROR_INVALID_PARAM, reason);
  return Made(comm, [&] { return comm.Refuse("an operator", why); });
}

inline void ExpectEnded(ErrorCode code, Communicator& comm) {
  EXPECT_TRUE(comm.failed());
  const Status status = Made(comm, [&] { return comm.Barrier(); });
  EXPECT_EQ(status.code(), code);
  EXPECT_CONTAINS(status.message(), "this communicator has ended");
}

// Each rank in turn refuses, from the first call on; the others get its reason, and the next call
// succeeds.
inline void Refusals(int rank, int variant, Communicator& comm) {
  const Kind kind = static_cast<Kind>(variant);
  for (int refuser = 0; refuser < comm.size(); ++refuser) {
    const std::string reason = "tensor " + std::to_string(refuser) + " is wrong";
    if (rank == refuser) {
      EXPECT_EQ(RefuseOnce(reason, comm).message(), "");
    } else {
      Attempt attempt(kind, false, &comm);
      const Status status = attempt.Run();
      EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
      EXPECT_CONTAINS(status.message(), RankText(refuser));
      EXPECT_CONTAINS(status.message(), "refused call");
      EXPECT_CONTAINS(status.message(), reason);
      EXPECT_TRUE(attempt.Untouched());
    }
    EXPECT_FALSE(comm.failed());
    if (refuser % 2 == 0) EXPECT_EQ(Try(kind, comm).message(), "");
  }
  EXPECT_EQ(Try(kind, comm).message(), "");
}

// All ranks refuse at the same time, twice; the next call succeeds.
inline void AllRefuse(int, int variant, Communicator& comm) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(RefuseOnce("no", comm).message(), "");
  }
  EXPECT_EQ(Try(static_cast<Kind>(variant), comm).message(), "");
}

// The last rank passes another count: all ranks get the same error, and no data moves.
inline void Disagreements(int rank, int variant, Communicator& comm) {
  const Kind kind = static_cast<Kind>(variant);
  EXPECT_EQ(Try(kind, comm).message(), "");
  Attempt attempt(kind, rank == comm.size() - 1, &comm);
  const Status status = attempt.Run();
  EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
  EXPECT_CONTAINS(status.message(), "count is 4 on " + RankText(0));
  EXPECT_CONTAINS(status.message(), "and 5 on " + RankText(comm.size() - 1));
  EXPECT_TRUE(attempt.Untouched());
  Tell(rank, status.message());
  ExpectEnded(ERROR_RANK_MISMATCH, comm);
}

// The last rank calls another operator.
inline void OtherOperators(int rank, int variant, Communicator& comm) {
  const bool last = rank == comm.size() - 1;
  Attempt attempt(static_cast<Kind>(last ? (variant + 1) % kNumKinds : variant), false, &comm);
  const Status status = attempt.Run();
  EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
  EXPECT_CONTAINS(status.message(), "the operator is ");
  EXPECT_TRUE(attempt.Untouched());
  ExpectEnded(ERROR_RANK_MISMATCH, comm);
}

// A late refusal takes precedence over a disagreement of the other ranks; the group goes on.
inline void RefusalOfADisagreement(int rank, int variant, Communicator& comm) {
  const Kind kind = static_cast<Kind>(variant);
  const int last = comm.size() - 1;
  if (rank == last) {
    AwaitCount(Shared().counters[0], last);
    EXPECT_EQ(RefuseOnce("too late", comm).message(), "");
  } else {
    Attempt attempt(kind, rank == 0, &comm);
    ++Shared().counters[0];
    const Status status = attempt.Run();
    EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(status.message(), "too late");
    EXPECT_TRUE(attempt.Untouched());
  }
  EXPECT_FALSE(comm.failed());
  EXPECT_EQ(Try(kind, comm).message(), "");
}

// The last rank does not come: the others get an error that names it, in time.
inline void TimeOuts(int rank, int variant, Communicator& comm) {
  const Kind kind = static_cast<Kind>(variant);
  const int last = comm.size() - 1;
  EXPECT_EQ(comm.Connect().message(), "");
  comm.set_timeout_s(0.2);
  if (rank == last) AwaitCount(Shared().counters[0], last);
  const auto start = std::chrono::steady_clock::now();
  Attempt attempt(kind, false, &comm);
  const Status status = attempt.Run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(status.code(), ERROR_TIMEOUT);
  EXPECT_CONTAINS(status.message(), RankText(last));
  EXPECT_CONTAINS(status.message(), "has not entered it");
  EXPECT_TRUE(took.count() < check::Patience(15));
  // The late rank still finds what the others sent before they gave up.
  if (rank != last) EXPECT_TRUE(attempt.Untouched());
  ExpectEnded(ERROR_TIMEOUT, comm);
  ++Shared().counters[0];
}

// The last rank aborts instead of calling.
inline void Aborts(int rank, int variant, Communicator& comm) {
  const int last = comm.size() - 1;
  EXPECT_EQ(Try(static_cast<Kind>(variant), comm).message(), "");
  if (rank == last) {
    AwaitCount(Shared().counters[0], last);
    comm.Abort("the user gave up");
  } else {
    ++Shared().counters[0];
    const Status status = Try(static_cast<Kind>(variant), comm);
    EXPECT_EQ(status.code(), ERROR_ABORTED);
    EXPECT_CONTAINS(status.message(), "the user gave up");
  }
  ExpectEnded(ERROR_ABORTED, comm);
}

// Another thread of rank 0 aborts the call that rank 0 is in; the other ranks come later.
inline void AbortsFromAThread(int rank, int variant, Communicator& comm) {
  EXPECT_EQ(Made(comm, [&] { return comm.Barrier(); }).message(), "");
  ++Shared().counters[1];
  std::thread aborting;
  if (rank == 0) {
    // An abort also ends the calls that slower ranks are still in.
    AwaitCount(Shared().counters[1], comm.size());
    aborting = std::thread([&] {
      while (!ControlOf(comm).in_call()) std::this_thread::yield();
      comm.Abort("a second thread gave up");
    });
  } else {
    AwaitCount(Shared().counters[0], 1);
  }
  const Status status = Try(static_cast<Kind>(variant), comm);
  EXPECT_EQ(status.code(), ERROR_ABORTED);
  EXPECT_CONTAINS(status.message(), "a second thread gave up");
  if (rank == 0) aborting.join();
  ++Shared().counters[0];
}

// The last rank leaves after some calls: those are complete, and the next one names it.
inline void Leaves(int rank, int variant, Communicator& comm) {
  const Kind kind = static_cast<Kind>(variant);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Try(kind, comm).message(), "");
  if (rank == comm.size() - 1) return comm.Close("its work is done");
  const Status status = Try(kind, comm);
  EXPECT_EQ(status.code(), ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), RankText(comm.size() - 1));
  EXPECT_CONTAINS(status.message(), "has left: its work is done");
  ExpectEnded(ERROR_PEER_LOST, comm);
}

// Rank 0 fails in the middle of its call with an error of its own.
inline void Failures(int rank, int variant, Communicator& comm) {
  Status status;
  if (rank == 0) {
    status =
        RunCall(ControlOf(comm), "Sum", [] { return Error(ERROR_OUT_OF_HOST_MEMORY, "no room"); });
  } else {
    Attempt attempt(static_cast<Kind>(variant), false, &comm);
    status = attempt.Run();
    EXPECT_CONTAINS(status.message(), "(reported by rank 0)");
    EXPECT_TRUE(attempt.Untouched());
  }
  EXPECT_EQ(status.code(), ERROR_OUT_OF_HOST_MEMORY);
  EXPECT_CONTAINS(status.message(), "no room");
  ExpectEnded(ERROR_OUT_OF_HOST_MEMORY, comm);
}

// A second thread of rank 0 calls while the first is in a call, which is not disturbed. Started
// calls run one after the other.
inline void SecondCallers(int rank, int variant, Communicator& comm) {
  if (CallsAreStarted()) return;
  const Kind kind = static_cast<Kind>(variant);
  EXPECT_EQ(Made(comm, [&] { return comm.Barrier(); }).message(), "");
  if (rank != 0) {
    AwaitCount(Shared().counters[0], 1);
    EXPECT_EQ(Try(kind, comm).message(), "");
    return;
  }
  std::thread first([&] { EXPECT_EQ(Try(kind, comm).message(), ""); });
  while (!ControlOf(comm).in_call()) std::this_thread::yield();
  const Status second = Try(kind, comm);
  EXPECT_EQ(second.code(), ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(second.message(), "one thread at a time");
  ++Shared().counters[0];
  first.join();
  EXPECT_FALSE(comm.failed());
}

inline std::vector<Case> ErrorCases() {
  const double ample_s = check::Patience(20);
  return {
      {"refusal", {2, 3, 4}, kNumKinds, ample_s, Refusals},
      {"all refuse", {1, 2, 3}, kNumKinds, ample_s, AllRefuse},
      {"disagreement", {2, 3, 4}, kNumKinds, ample_s, Disagreements},
      {"other operator", {2, 3}, kNumKinds, ample_s, OtherOperators},
      {"refusal of a disagreement", {3, 4}, kNumKinds, ample_s, RefusalOfADisagreement},
      {"time-out", {2, 3}, kNumKinds, ample_s, TimeOuts},
      {"abort", {2, 3, 4}, kNumKinds, ample_s, Aborts},
      {"abort from a thread", {2, 3}, kNumKinds, ample_s, AbortsFromAThread},
      {"leaving", {2, 3, 4}, kNumKinds, ample_s, Leaves},
      {"failure", {2, 3, 4}, kNumKinds, ample_s, Failures},
      {"second caller", {2, 3}, kNumKinds, ample_s, SecondCallers},
  };
}

}  // namespace conformance
