// Ranks report their disagreement, even if another rank never comes to the call.
#include <string>
#include <vector>

#include "ranks.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::Status;
using Clock = std::chrono::steady_clock;

constexpr double kTimeoutS = 3.0;

// Every rank but `absent` makes `call`, which must end as a disagreement with these texts.
void ExpectTold(int absent, const std::vector<std::string>& texts,
                const std::function<Status(int, Communicator&)>& call) {
  const ranks::Event told;
  ranks::Run(3, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    communicator.set_timeout_s(kTimeoutS);
    if (rank == absent) return told.Wait(2);
    const Clock::time_point start = Clock::now();
    const Status status = call(rank, communicator);
    told.Set();
    EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
    for (const std::string& text : texts) EXPECT_CONTAINS(status.message(), text);
    EXPECT_CONTAINS(status.message(), "; rank " + std::to_string(absent) + " (pid ");
    EXPECT_CONTAINS(status.message(), "has not entered it");
    // It is reported after one time-out, not after a second one.
    EXPECT_TRUE(std::chrono::duration<double>(Clock::now() - start).count() <
                kTimeoutS + check::Patience(3));
  });
}

std::string On(const std::string& value, int rank) {
  return value + " on rank " + std::to_string(rank) + " (pid ";
}

}  // namespace

TEST(ADifferentFieldIsReportedWhicheverRankIsAbsent) {
  for (const int absent : {0, 1, 2}) {
    const int first = absent == 0 ? 1 : 0;
    const int second = absent == 2 ? 1 : 2;
    ExpectTold(absent,
               {"rows is " + On(std::to_string(first), first), On(std::to_string(second), second)},
               [](int rank, Communicator& communicator) {
                 return communicator.Agree(Agreement("Toy").Equal("rows", rank));
               });
  }
}

TEST(ATimeOutWithoutADisagreementStaysATimeOut) {
  const ranks::Event told;
  ranks::Run(3, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    communicator.set_timeout_s(kTimeoutS);
    if (rank == 2) return told.Wait(2);
    const Status status = communicator.Barrier();
    told.Set();
    EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), "rank 2 (pid ");
  });
}
