// LinearParallel while a rank is late: with its call, with a refusal, or with a call of another
// kind.

#include "operators/linear_parallel/linear_call.h"

namespace collops {
namespace {

using linear_call::Case;
using linear_call::Expected;
using linear_call::NameTheJob;
using linear_call::NumRanks;
using linear_call::Outputs;
using linear_call::Param;
using Clock = std::chrono::steady_clock;

constexpr const Engine* kEngines[] = {&kWindows, &kPipeline};
constexpr useconds_t kLate = 50000;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Six strips: without a late rank the others get on until they need its rows (type 2), or until
// nothing is left of the tiles that it reads (types 1 and 4).
std::vector<Case> Cases() {
  return {
      {Param::LINEAR_REDUCE_SCATTER, 1, 3, true, {}, {{12, 9, 9}}, 30, 24, 2000, true, true},
      {Param::ALL_GATHER_LINEAR, 3, 1, true, {{40, 33, 20}}, {}, 0, 24, 2000, false, true},
      {Param::ALL_GATHER_LINEAR_REDUCE_SCATTER,
       2,
       2,
       true,
       {{50, 36}, {16, 70}},
       {{40, 46}, {86, 0}},
       0,
       32,
       2000,
       true,
       true},
      {Param::ALL_GATHER_LINEAR_REDUCE_SCATTER,
       2,
       2,
       false,
       {{5, 6}, {11, 0}},
       {{4, 7}, {2, 9}},
       0,
       100,
       2000,
       false,
       false},
  };
}

// A call of all ranks, with data of its own.
void CheckRound(Case c, int round, const Engine* engine, Communicator* comm) {
  c.seed = round;
  Outputs got;
  EXPECT_EQ(Run(c, {true, engine, round % 2 == 1}, comm, &got).message(), "");
  EXPECT_TRUE(got.output == Expected(c, comm->rank()));
}

// Rank after rank, from the first call on.
void RefuseInTurn(const Case& c, const Engine* engine, Communicator* comm) {
  for (int round = 0; round < NumRanks(c); ++round) {
    const Clock::time_point start = Clock::now();
    if (comm->rank() == round) {
      usleep(kLate);
      const Status bad(ERROR_INVALID_PARAM, "the weight is wrong");
      EXPECT_EQ(comm->Refuse("LinearParallel", bad).message(), "");
    } else {
      Outputs none;
      const Status status = Run(c, {true, engine, round % 2 == 1}, comm, &none);
      EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
      EXPECT_CONTAINS(status.message(), "the weight is wrong");
    }
    EXPECT_TRUE(SecondsSince(start) < check::Patience(10));
    EXPECT_FALSE(comm->failed());
    CheckRound(c, round, engine, comm);
  }
}

TEST(ALateRefusalIsReportedInTheMiddle) {
  for (const Case& c : Cases()) {
    for (const Engine* engine : kEngines) {
      NameTheJob();
      ranks::Run(NumRanks(c), [&](int, Communicator& comm) { RefuseInTurn(c, engine, &comm); });
    }
  }
}

TEST(ALateMemberDelaysTheOthersAndCausesNoError) {
  for (const Case& c : Cases()) {
    for (const Engine* engine : kEngines) {
      NameTheJob();
      ranks::Run(NumRanks(c), [&](int rank, Communicator& comm) {
        for (int round = 0; round < NumRanks(c); ++round) {
          const Clock::time_point start = Clock::now();
          if (rank == round) usleep(kLate);
          CheckRound(c, round, engine, &comm);
          EXPECT_TRUE(SecondsSince(start) < check::Patience(5));
        }
      });
    }
  }
}

TEST(ADisagreementThatComesLateEndsTheGroup) {
  for (const Case& c : Cases()) {
    for (const Engine* engine : kEngines) {
      NameTheJob();
      ranks::Run(NumRanks(c), [&](int rank, Communicator& comm) {
        CheckRound(c, 0, engine, &comm);
        Case mine = c;
        if (rank == 1) {
          usleep(kLate);
          mine.n = 1999;
        }
        Outputs none;
        const Status status = Run(mine, {true, engine, false}, &comm, &none);
        EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
        EXPECT_CONTAINS(status.message(), "n is ");
        EXPECT_CONTAINS(status.message(), "1999");
        EXPECT_CONTAINS(status.message(), "rank 1");
        EXPECT_TRUE(comm.failed());
      });
    }
  }
}

}  // namespace
}  // namespace collops
