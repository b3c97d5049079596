// A deadline beyond the range of the clock is far away, not past.
#include "collops/core/deadline.h"

#include <limits>

#include "check.h"

using collops::Deadline;

TEST(ALongDeadlineIsNotPassed) {
  for (const double seconds : {1e9, 9.2e9, 1e10, 1e18, 1e300, std::numeric_limits<double>::max()}) {
    const Deadline deadline = Deadline::After(seconds);
    EXPECT_FALSE(deadline.Passed());
    EXPECT_TRUE(deadline.RemainingS() > 1e8);
    EXPECT_EQ(deadline.timeout_s(), seconds);
  }
}

TEST(AShortDeadlinePasses) {
  EXPECT_TRUE(Deadline::After(0).Passed());
  EXPECT_TRUE(Deadline::After(-1).Passed());
  const Deadline deadline = Deadline::After(0.01);
  while (!deadline.Passed()) {
  }
  EXPECT_TRUE(deadline.RemainingS() <= 0);
}
