// Numbers that a peer wrote are checked before they are used.
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "collops/comm/control/first_contact/messages.h"
#include "collops/core/dtype.h"
#include "ranks.h"

namespace {

using collops::Communicator;
using collops::Status;
using collops::control::Board;
using collops::control::Endpoint;

// Waits until rank 0 has finished its earlier steps, which a failure outside all steps would end.
const Board& BoardAfterItsStep(Communicator& communicator) {
  const Endpoint& endpoint = ControlOf(communicator).endpoint();
  while (!endpoint.HasFinished(0, ControlOf(communicator).step_number())) std::this_thread::yield();
  return endpoint.board();
}

// Rank 1 says that it has failed with this code.
void ExpectFailure(int32_t code, collops::ErrorCode want) {
  const ranks::Event reported;
  ranks::Run(2, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    if (rank == 0) {
      const Status status = communicator.Barrier();
      reported.Set();
      EXPECT_EQ(status.code(), want);
      EXPECT_CONTAINS(status.message(), "what it says (reported by rank 1)");
      return;
    }
    const Board& board = BoardAfterItsStep(communicator);
    board.member(1).code = code;
    collops::control::WriteReason("what it says", board.member(1).reason);
    board.group().failed_rank.store(2);
    reported.Wait();
  });
}

}  // namespace

TEST(AFailureWithAnInvalidCodeIsALoss) {
  for (const int32_t code : {0, -1, 30, 99, 105, 12345, INT_MIN, INT_MAX}) {
    ExpectFailure(code, collops::ERROR_PEER_LOST);
  }
  ExpectFailure(collops::ERROR_UNSUPPORTED, collops::ERROR_UNSUPPORTED);
}

TEST(AFailureOfAnInvalidRankIsAFailureOfTheGroup) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    if (rank == 1) BoardAfterItsStep(communicator).group().failed_rank.store(UINT_MAX);
    EXPECT_EQ(communicator.Barrier().code(), collops::ERROR_PEER_LOST);
  });
}

TEST(AReductionThatIsNoneHasAName) {
  EXPECT_EQ(std::string(collops::Name(static_cast<collops::ReduceOp>(77))), "undefined");
  EXPECT_EQ(std::string(collops::Name(static_cast<collops::ReduceOp>(-1))), "undefined");
}

TEST(ARankUsesItsOwnChoiceAndNotWhatAPeerWroteThere) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  ranks::Run(2, [](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    Endpoint& endpoint = ControlOf(communicator).endpoint();
    const uint64_t step = ControlOf(communicator).step_number() + 1;
    std::shared_ptr<Communicator> part;
    if (rank == 1) {
      while (!endpoint.HasBegun(0, step)) std::this_thread::yield();
      const int64_t color = 7;
      std::memcpy(endpoint.board().shared(0, step), &color, sizeof(color));
    }
    EXPECT_EQ(communicator.Split(3, 0, &part).message(), "");
    ASSERT_TRUE(part != nullptr);
    if (rank == 0) EXPECT_EQ(part->rank(), 0);
    if (rank == 0) EXPECT_EQ(part->size(), 2);
  });
  unsetenv("COLLOPS_JOB_ID");
}
