// Communicator::Split: ranks that end or leave meanwhile, and what a subgroup holds.
#include <chrono>
#include <csignal>

#include "proc.h"
#include "ranks.h"

namespace {

using collops::Communicator;

// The ranks of a color of two ranks.
std::vector<int> PairOf(int rank) {
  return {rank / 2 * 2, rank / 2 * 2 + 1};
}

}  // namespace

// A rank that dies between Split and the subgroup's first contact is not in the subgroup yet: the
// parent reports it to the other members, at once and with the parent's rank numbers.
TEST(ARankThatEndsBeforeItsSubgroupMeetsIsReported) {
  for (const bool kept : {true, false}) {
    for (const int dying : {0, 1}) {
      const collops::JobIdentity job = ranks::FreshJob();
      setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
      std::vector<pid_t> pids;
      for (int rank = 0; rank < 4; ++rank) {
        pids.push_back(ranks::Start([&, rank] {
          const auto comm = ranks::Make(job, rank, 4);
          std::shared_ptr<Communicator> part;
          const collops::Status made = kept ? comm->KeptSplit("rows", rank / 2, PairOf(rank), &part)
                                            : comm->Split(rank / 2, rank, &part);
          // Kept subgroups and their parent fail together: a loss in one ends the calls of all.
          const bool of_other_part = kept && rank >= 2;
          if (!made.ok()) {
            EXPECT_TRUE(of_other_part && made.code() == collops::ERROR_PEER_LOST);
            return;
          }
          if (rank == dying) raise(SIGKILL);
          const auto start = std::chrono::steady_clock::now();
          const collops::Status met = part->Barrier();
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
          const bool lost = met.code() == collops::ERROR_PEER_LOST;
          EXPECT_TRUE(of_other_part ? met.ok() || lost : met.ok() == (rank >= 2));
          if (rank < 2) EXPECT_TRUE(lost);
          EXPECT_TRUE(took.count() < check::Patience(5));
        }));
      }
      for (int rank = 0; rank < 4; ++rank) {
        const ranks::Ended ended = ranks::Wait(pids[static_cast<size_t>(rank)]);
        EXPECT_EQ(ended.exited, rank != dying);
        EXPECT_EQ(ended.code, 0);
      }
    }
  }
}

// One rank fails before its subgroup has met: the other members must get its error.
TEST(AFailureOfTheParentEndsTheFirstContactOfAKeptSubgroup) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  ranks::Run(4, [](int rank, Communicator& communicator) {
    std::shared_ptr<Communicator> part;
    const collops::Status made = communicator.KeptSplit("rows", rank / 2, PairOf(rank), &part);
    // A rank that is late may get the failure here already.
    if (!made.ok()) EXPECT_EQ(made.code(), collops::ERROR_OUT_OF_HOST_MEMORY);
    if (!made.ok()) return;
    const auto start = std::chrono::steady_clock::now();
    const collops::Status reason(collops::ERROR_OUT_OF_HOST_MEMORY, "no room for the sums");
    ASSERT_TRUE(part != nullptr);
    if (rank == 1) {
      EXPECT_EQ(ControlOf(*part).Fail(reason, 0).message(), reason.message());
      EXPECT_TRUE(communicator.failed());
    } else if (rank == 0) {
      EXPECT_EQ(part->Barrier().code(), collops::ERROR_OUT_OF_HOST_MEMORY);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(took.count() < check::Patience(5));
    usleep(300000);  // no event of another rank shows this, so the test waits
  });
}

// A subgroup of Split() may outlive its parent, which its members may leave at any time.
TEST(LeavingTheParentDoesNotDisturbASubgroupThatMeets) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  ranks::Run(2, [](int rank, Communicator& communicator) {
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(communicator.Split(0, 0, &part).message(), "");
    if (rank == 1) {
      communicator.Close("it needs the part alone");
      usleep(200000);
    }
    EXPECT_EQ(part->Barrier().message(), "");
  });
}

// Rank 0 of the subgroup closes once it has sent the welcome, which the member reads much later.
TEST(AMemberThatReadsItsWelcomeLateHasMet) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  ranks::Run(3, [](int rank, Communicator& communicator) {
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(communicator.Split(0, rank, &part).message(), "");
    ASSERT_TRUE(part != nullptr);
    if (rank == 1) usleep(300000);
    EXPECT_EQ(part->Connect().message(), "");
    if (rank == 0) part.reset();
    EXPECT_EQ(communicator.Barrier().message(), "");  // the members keep theirs until all have met
  });
}

// What a subgroup holds goes when it is closed, not when another communicator is made.
TEST(AClosedSubgroupHoldsNoDescriptor) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  ranks::Run(2, [](int, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    const int before = proc::NumDescriptors();
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(communicator.Split(0, 0, &part).message(), "");
    EXPECT_EQ(part->Barrier().message(), "");
    EXPECT_TRUE(proc::NumDescriptors() > before);
    part->Close("it is through");
    part.reset();
    EXPECT_EQ(proc::NumDescriptors(), before);
  });
}

// The windows of a subgroup are shared with its ranks only, also after its communicator closed.
TEST(AWindowIsAddressedByTheRanksOfItsGroup) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  ranks::Run(3, [](int rank, Communicator& communicator) {
    std::shared_ptr<collops::Window> window;
    EXPECT_EQ(communicator.AllocateWindow(100, &window).message(), "");
    EXPECT_EQ(window->peers().count(), 3);
    EXPECT_TRUE(window->peers().all());
    EXPECT_EQ(communicator.WindowPeers().count(), 3);
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(communicator.Split(rank % 2, 0, &part).message(), "");
    ASSERT_TRUE(part != nullptr);
    EXPECT_EQ(part->AllocateWindow(100, &window).message(), "");
    part->Close("the test is over");
    part.reset();
    EXPECT_EQ(window->peers().count(), rank == 1 ? 1 : 2);
    EXPECT_TRUE(window->peers().Contains(0));
    EXPECT_EQ(window->peers().Contains(1), rank != 1);
    EXPECT_FALSE(window->peers().Contains(2));
  });
}
