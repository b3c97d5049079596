// An exception inside a call is the call's error, which the others get at once.
#include <new>
#include <stdexcept>

#include "ranks.h"
#include "run_call.h"

namespace {

using collops::Communicator;
using collops::Status;
using Clock = std::chrono::steady_clock;

// Rank 1 makes a call whose body throws; rank 0 waits for it in a call of its own.
void ExpectTold(collops::ErrorCode code, const std::string& text,
                const std::function<Status()>& body) {
  ranks::Run(2, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    const Clock::time_point start = Clock::now();
    const Status status =
        rank == 1 ? RunCall(ControlOf(communicator), "Toy", body) : communicator.Barrier();
    EXPECT_EQ(status.code(), code);
    EXPECT_CONTAINS(status.message(), "Toy: " + text);
    if (rank == 0) EXPECT_CONTAINS(status.message(), "(reported by rank 1)");
    EXPECT_TRUE(communicator.failed());
    EXPECT_EQ(communicator.Barrier().code(), code);
    EXPECT_TRUE(std::chrono::duration<double>(Clock::now() - start).count() <
                check::Patience(10.0));
  });
}

}  // namespace

TEST(LackOfMemoryIsReportedAsSuch) {
  ExpectTold(collops::ERROR_OUT_OF_HOST_MEMORY, "this process cannot allocate more memory",
             []() -> Status { throw std::bad_alloc(); });
}

TEST(OtherExceptionsAreReportedWithTheirText) {
  ExpectTold(collops::ERROR_RT_FAIL, "what went wrong",
             []() -> Status { throw std::runtime_error("what went wrong"); });
}
