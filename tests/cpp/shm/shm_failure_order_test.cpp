// Which of two errors counts, and in which call: the same on every rank, whichever rank is late.
#include <algorithm>
#include <csignal>

#include "collops/comm/fused_call.h"
#include "ranks.h"

namespace {

using collops::Agreement;
using collops::AllGatherVCall;
using collops::Communicator;
using collops::DType;
using collops::FusedBody;
using collops::FusedCall;
using collops::FusedCallSpec;
using collops::Status;

constexpr useconds_t kLate = 100000;

// A fused call of all ranks, who must agree on `k`.
Status RunFused(Communicator* comm, int64_t k, const FusedBody& body) {
  std::vector<int> ranks;
  for (int r = 0; r < comm->size(); ++r) ranks.push_back(r);
  const std::vector<int64_t> rows(ranks.size(), 1);
  const std::vector<int32_t> x(16, comm->rank());
  Agreement agreement("LinearParallel");
  agreement.Equal("k", k).EqualInGroup("gatherRows", ranks, comm->rank(), rows);
  FusedCallSpec spec;
  spec.agreement = &agreement;
  spec.dtype = DType::kInt32;
  spec.readers = &ranks;
  spec.reader_rows = &rows;
  spec.row_bytes = 8;
  spec.x = x.data();
  return comm->RunFused(spec, body);
}

Status Nothing(FusedCall* /*call*/) {
  return collops::Ok();
}

// A plain call, whose ranks must agree on `root`.
Status RunPlain(Communicator* comm, int root) {
  const std::vector<int64_t> counts(static_cast<size_t>(comm->size()), 1);
  std::vector<int64_t> displs;
  for (int r = 0; r < comm->size(); ++r) displs.push_back(r);
  std::vector<int32_t> output(counts.size());
  const int32_t x = comm->rank();
  Agreement agreement("AllGatherV");
  agreement.Equal("rankRoot", root);
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = &x;
  call.output = output.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  return comm->AllGatherV(call);
}

}  // namespace

// Rank 0 refuses a call in which ranks 1 and 2 disagree.
TEST(ARefusalTakesPrecedenceOverADisagreementInAnyOrder) {
  for (const bool fused : {true, false}) {
    for (const bool refusal_is_late : {true, false}) {
      ranks::Run(3, [&](int rank, Communicator& comm) {
        EXPECT_EQ(comm.Barrier().message(), "");
        if ((rank == 0) == refusal_is_late) usleep(kLate);
        if (rank == 0) {
          const Status bad(collops::ERROR_INVALID_PARAM, "the weight is wrong");
          EXPECT_EQ(comm.Refuse("LinearParallel", bad).message(), "");
        } else {
          const Status status =
              fused ? RunFused(&comm, 10 + rank, Nothing) : RunPlain(&comm, rank % 2);
          EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
          EXPECT_CONTAINS(status.message(), "the weight is wrong");
        }
        EXPECT_FALSE(comm.failed());
        EXPECT_EQ(comm.Barrier().message(), "");
      });
    }
  }
}

// Ranks 0 and 1 disagree in a call while rank 2 is still in the previous one.
TEST(ADisagreementDoesNotChangeThePreviousCall) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    const Status right = RunFused(&comm, 10, [rank](FusedCall*) {
      if (rank == 2) usleep(kLate);
      return collops::Ok();
    });
    EXPECT_EQ(right.message(), "");
    const Status wrong = RunFused(&comm, rank == 1 ? 11 : 10, Nothing);
    EXPECT_EQ(wrong.code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(wrong.message(), "k is ");
    EXPECT_TRUE(comm.failed());
  });
}

// Rank 1 dies after a call; rank 0 sees that in its next call, while rank 2 is still in the first.
TEST(ARanksEndDoesNotChangeThePreviousCall) {
  const collops::JobIdentity job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(ranks::Start([&job, rank] {
      const auto comm = ranks::Make(job, rank, 3);
      EXPECT_EQ(comm->Barrier().message(), "");
      const Status right = RunFused(comm.get(), 10, [rank](FusedCall* call) -> Status {
        if (rank != 2) return collops::Ok();
        COLLOPS_RETURN_IF_ERROR(
            call->Wait([call] { return call->HasAnnounced(0) && call->HasAnnounced(1); }));
        usleep(4 * kLate);
        return collops::Ok();
      });
      EXPECT_EQ(right.message(), "");
      if (rank == 1) raise(SIGKILL);
      const Status next = RunFused(comm.get(), 10, Nothing);
      EXPECT_EQ(next.code(), collops::ERROR_PEER_LOST);
      EXPECT_CONTAINS(next.message(), "rank 1 (pid ");
    }));
  }
  for (int rank = 0; rank < 3; ++rank) {
    const ranks::Ended ended = ranks::Wait(pids[static_cast<size_t>(rank)]);
    EXPECT_EQ(ended.exited, rank != 1);
    EXPECT_EQ(ended.code, 0);
  }
}

// Four ranks in two groups that read each other, and two that combine. A disagreement in one group
// must reach the ranks that are done before the group's members have looked.
TEST(ADisagreementIsReportedToRanksOfOtherGroups) {
  for (const bool of_readers : {true, false}) {
    ranks::Run(4, [&](int rank, Communicator& comm) {
      const int across = (rank + 2) % 4;
      const std::vector<int> readers = {std::min(rank, across), std::max(rank, across)};
      const std::vector<int> combiners = {rank / 2 * 2, rank / 2 * 2 + 1};
      std::vector<int64_t> reader_rows = {3, 4};
      std::vector<int64_t> combiner_rows = {5, 2};
      if (rank == 2) (of_readers ? reader_rows : combiner_rows)[1] = 6;
      std::vector<int32_t> x(16, rank);
      Agreement agreement("LinearParallel");
      agreement.EqualInGroup("gatherRows", readers, rank / 2, reader_rows)
          .EqualInGroup("scatterRows", combiners, rank % 2, combiner_rows);
      FusedCallSpec spec;
      spec.agreement = &agreement;
      spec.dtype = DType::kInt32;
      spec.readers = &readers;
      spec.reader_rows = &reader_rows;
      spec.row_bytes = 8;
      spec.x = x.data();
      // The members of the group in question announce the call and look much later.
      const std::vector<int>& group = of_readers ? readers : combiners;
      const bool late = std::find(group.begin(), group.end(), 2) != group.end();
      EXPECT_EQ(comm.Barrier().message(), "");
      const Status status = comm.RunFused(spec, [&](FusedCall* /*call*/) {
        if (late) usleep(300000);
        return collops::Ok();
      });
      EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
      EXPECT_CONTAINS(status.message(), of_readers ? "gatherRows[1] is " : "scatterRows[1] is ");
      EXPECT_CONTAINS(status.message(), "rank 2");
    });
  }
}

// An error that ends one rank's call early ends the same call on all ranks.
TEST(AFailureInsideACallEndsThatCallEverywhere) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    const Status status = RunFused(&comm, 10, [rank](FusedCall* call) -> Status {
      if (rank == 1) return Status(collops::ERROR_OUT_OF_HOST_MEMORY, "no room for the sums");
      return call->Wait([] { return false; });
    });
    EXPECT_EQ(status.code(), collops::ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_CONTAINS(status.message(), "no room for the sums");
    EXPECT_TRUE(comm.failed());
  });
}

// This refusal does not wait for rank 1, which comes when both other ranks have their results.
TEST(ARefusalIsReportedWhileAnotherRankIsLate) {
  const ranks::Event all_others;
  ranks::Run(3, [&](int rank, Communicator& comm) {
    EXPECT_EQ(RunPlain(&comm, 0).message(), "");
    const Status bad(collops::ERROR_INVALID_PARAM, "no");
    if (rank == 0) {
      EXPECT_TRUE(comm.Refuse("AllGatherV", bad).ok());
      all_others.Set();
      EXPECT_TRUE(comm.Refuse("AllGatherV", bad).ok());
    } else {
      if (rank == 1) all_others.Wait(2);
      EXPECT_EQ(RunPlain(&comm, 0).code(), collops::ERROR_RANK_MISMATCH);
      if (rank == 2) all_others.Set();
      EXPECT_EQ(RunPlain(&comm, 0).code(), collops::ERROR_RANK_MISMATCH);
    }
    EXPECT_EQ(RunPlain(&comm, 0).message(), "");
  });
}
