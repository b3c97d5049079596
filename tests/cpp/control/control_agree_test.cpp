// What a backend with a vendor's engine needs of Control: seeing without waiting that a rank has
// ended.
#include <string>

#include "ranks.h"

namespace {

using collops::Communicator;
using collops::Status;

}  // namespace

TEST(ARankThatHasEndedIsSeenWithoutWaiting) {
  const collops::JobIdentity job = ranks::FreshJob();
  const pid_t pid = ranks::Start([&] { EXPECT_TRUE(ranks::Make(job, 1, 2)->Barrier().ok()); });
  const auto communicator = ranks::Make(job, 0, 2);
  EXPECT_TRUE(
      ControlOf(*communicator).Peek("AllGatherV").ok());  // before first contact no rank is missing
  EXPECT_TRUE(communicator->Barrier().ok());
  EXPECT_EQ(ranks::Wait(pid).code, 0);
  const Status status = ControlOf(*communicator).Peek("AllGatherV");
  EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), "rank 1 (pid " + std::to_string(pid) + ")");
}

TEST(AnAbortIsSeenWithoutWaiting) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    Status status = communicator.Barrier();
    if (rank == 0) return communicator.Abort("HCCL gave up");
    while (status.ok()) status = ControlOf(communicator).Peek("AllGatherV");
    EXPECT_CONTAINS(status.message(), "HCCL gave up");
  });
}
