// The shm backend when ranks refuse, disagree, leave, die, or never come.
#include <cstring>

#include "collops/core/process/interrupt.h"
#include "collops/operators/framework/collective_terms.h"
#include "ranks.h"

namespace {

using collops::AllGatherVCall;
using collops::Communicator;
using collops::DType;
using collops::Status;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The plain level's additional terms of a call.
struct Label {
  int dim = 0;
  int num_tensors = 1;
  std::string type;
};

// An AllGatherV of `count` int32 per rank, as this rank assumes.
Status Gather(Communicator& communicator, int64_t count = 1, DType dtype = DType::kInt32,
              int root = 0, const Label& label = Label()) {
  const size_t size = static_cast<size_t>(communicator.size());
  std::vector<int64_t> counts(size, count);
  std::vector<int64_t> displs(size);
  for (size_t r = 0; r < size; ++r) displs[r] = static_cast<int64_t>(r) * count;
  std::vector<int64_t> x(static_cast<size_t>(count), communicator.rank());
  std::vector<int64_t> output(size * static_cast<size_t>(count));
  collops::CollectiveTerms terms;
  terms.dtype = label.type.empty() ? collops::Name(dtype) : label.type.c_str();
  terms.root = root;
  terms.num_tensors = label.num_tensors;
  terms.dim = label.dim;
  collops::Agreement agreement("AllGatherV");
  collops::AddTerms(terms, &agreement);
  agreement.EqualList("recvCounts", counts.data(), communicator.size())
      .EqualList("rdispls", displs.data(), communicator.size());
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = dtype;
  call.x = x.data();
  call.output = output.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  return communicator.AllGatherV(call);
}

struct Claim {
  int rank;
  int rank_size;
};

// First contact of processes that claim these ranks. The first is rank 0; it begins once the others
// have sent their hello, which they do when they are created.
void Meet(const std::vector<Claim>& claims, const std::function<void(const Status&)>& check) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens;
  const ranks::Event came;
  std::vector<pid_t> pids;
  for (size_t i = 0; i < claims.size(); ++i) {
    pids.push_back(ranks::Start([&, i] {
      if (i > 0) listens.Wait();
      const auto communicator =
          ranks::Make(job, claims[i].rank, claims[i].rank_size, check::Patience(5));
      if (i > 0) {
        came.Set();
      } else {
        listens.Set(claims.size() - 1);
        came.Wait(claims.size() - 1);
      }
      check(communicator->Connect());
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

}  // namespace

TEST(ARefusalReachesTheOthersAndTheNextCallWorks) {
  ranks::Run(3, [](int rank, Communicator& communicator) {
    for (int round = 0; round < 20; ++round) {
      EXPECT_EQ(Gather(communicator).message(), "");
      if (rank == round % 3) {
        const Status bad(collops::ERROR_INVALID_PARAM, "block 2 is wrong");
        EXPECT_TRUE(communicator.Refuse("AllGatherV", bad).ok());
      } else {
        const Status status = Gather(communicator);
        EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
        EXPECT_CONTAINS(status.message(), "rank " + std::to_string(round % 3));
        EXPECT_CONTAINS(status.message(), "block 2 is wrong");
      }
      EXPECT_FALSE(communicator.failed());
    }
    EXPECT_EQ(Gather(communicator).message(), "");
  });
}

TEST(ARefusalIsReportedWhileAnotherRankIsLate) {
  const ranks::Event all_others;
  ranks::Run(3, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(Gather(communicator).message(), "");
    const Status bad(collops::ERROR_INVALID_PARAM, "no");
    if (rank == 0) {
      // This refusal does not wait for rank 1, which comes when both other ranks have their
      // results.
      EXPECT_TRUE(communicator.Refuse("AllGatherV", bad).ok());
      all_others.Set();
      EXPECT_TRUE(communicator.Refuse("AllGatherV", bad).ok());
    } else {
      if (rank == 1) all_others.Wait(2);
      EXPECT_EQ(Gather(communicator).code(), collops::ERROR_RANK_MISMATCH);
      if (rank == 2) all_others.Set();
      EXPECT_EQ(Gather(communicator).code(), collops::ERROR_RANK_MISMATCH);
    }
    EXPECT_EQ(Gather(communicator).message(), "");
  });
}

TEST(DisagreementIsAnErrorOnAllRanks) {
  const auto check = [](const std::string& field, const std::string& a, const std::string& b,
                        const std::function<Status(int, Communicator&)>& call) {
    ranks::Run(3, [&](int rank, Communicator& communicator) {
      EXPECT_EQ(Gather(communicator).message(), "");
      const Status status = call(rank, communicator);
      EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
      for (const std::string& part : {field, a, b, std::string("rank 2")}) {
        EXPECT_CONTAINS(status.message(), part);
      }
      EXPECT_TRUE(communicator.failed());
      EXPECT_CONTAINS(Gather(communicator).message(), "make a new one");
    });
  };
  check("recvCounts[0]", "3", "4",
        [](int rank, Communicator& c) { return Gather(c, rank == 2 ? 4 : 3); });
  check("dtype", "int32", "float32", [](int rank, Communicator& c) {
    return Gather(c, 1, rank == 2 ? DType::kFloat32 : DType::kInt32);
  });
  check("rankRoot", "0", "1",
        [](int rank, Communicator& c) { return Gather(c, 1, DType::kInt32, rank == 2); });
  check("operator", "AllGatherV", "Barrier",
        [](int rank, Communicator& c) { return rank == 2 ? c.Barrier() : Gather(c); });
  const auto labelled = [&check](const std::string& field, const std::string& a,
                                 const std::string& b, const Label& even, const Label& odd) {
    check(field, a, b, [&even, &odd](int rank, Communicator& c) {
      return Gather(c, 1, DType::kInt8, 0, rank == 2 ? odd : even);
    });
  };
  labelled("dim", "1", "3", Label{1, 1, {}}, Label{3, 1, {}});
  labelled("number of tensors", "1", "5", Label{}, Label{0, 5, {}});
  labelled("dtype", "int8", "|S1", Label{}, Label{0, 1, "|S1"});
  // The longest text that fits, without a terminator.
  const std::string longest(collops::Agreement::kTextBytes, 'a');
  labelled("dtype", "int8", longest + " on", Label{}, Label{0, 1, longest});
}

TEST(AKilledRankIsReportedWithinASecond) {
  const collops::JobIdentity job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      const auto communicator = ranks::Make(job, rank, 3);
      EXPECT_EQ(Gather(*communicator).message(), "");
      if (rank == 2) {
        usleep(200000);  // usually the others wait by then
        (void)raise(SIGKILL);
      }
      const Clock::time_point start = Clock::now();
      const Status status = Gather(*communicator, 100000);
      EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
      EXPECT_CONTAINS(status.message(), "rank 2 (pid ");
      EXPECT_TRUE(SecondsSince(start) < check::Patience(1.5));
    }));
  }
  EXPECT_EQ(ranks::Wait(pids[0]).code, 0);
  EXPECT_EQ(ranks::Wait(pids[1]).code, 0);
  EXPECT_FALSE(ranks::Wait(pids[2]).exited);
}

TEST(ARankThatLeavesSaysWhy) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    EXPECT_EQ(Gather(communicator).message(), "");
    if (rank == 1) return communicator.Close("ValueError: no such token");
    const Status status = Gather(communicator);
    EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
    EXPECT_CONTAINS(status.message(), "ValueError: no such token");
  });
}

TEST(ARankMayLeaveOnceItsPartIsDone) {
  ranks::Run(3, [](int rank, Communicator& communicator) {
    if (rank == 2) usleep(300000);
    EXPECT_EQ(Gather(communicator).message(), "");
  });
}

TEST(ALateRankIsNamedAtTheTimeout) {
  const ranks::Event timed_out;
  ranks::Run(2, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(Gather(communicator).message(), "");
    if (rank == 0) communicator.set_timeout_s(0.4);
    if (rank == 1) timed_out.Wait();
    const Status status = Gather(communicator);
    if (rank == 0) timed_out.Set();
    EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), "rank 1 (pid ");
  });
}

TEST(AMissingRankIsNamedByTheOthers) {
  std::vector<pid_t> pids;
  for (const int missing : {0, 1, 2}) {
    const collops::JobIdentity job = ranks::FreshJob();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == missing) continue;
      pids.push_back(ranks::Start([=] {
        const auto communicator = ranks::Make(job, rank, 3, check::Patience(4.0));
        const Status status = communicator->Connect();
        EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
        EXPECT_CONTAINS(status.message(),
                        "rank " + std::to_string(missing) + " of 3 did not connect");
        EXPECT_CONTAINS(status.message(), "comm_domain");
      }));
    }
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

TEST(RanksThatDoNotFitGetAnErrorInFirstContact) {
  Meet({{0, 3}, {1, 4}, {2, 3}}, [](const Status& status) {
    EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(status.message(), "rankSize is 3 on rank 0");
    EXPECT_CONTAINS(status.message(), "4 on rank 1");
  });
}

TEST(ARankClaimedTwiceIsAnErrorWithBothPids) {
  for (const int claimed : {0, 1}) {
    Meet({{0, 3}, {1, 3}, {claimed, 3}}, [claimed](const Status& status) {
      EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
      EXPECT_CONTAINS(status.message(),
                      "rank " + std::to_string(claimed) + " is claimed twice, by pid ");
      EXPECT_CONTAINS(status.message(), " and by pid ");
    });
  }
}

TEST(ANewCommunicatorMeetsAfterAFailure) {
  const collops::JobIdentity job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      for (int round = 0; round < 10; ++round) {
        const auto communicator = ranks::Make(job, rank, 3, check::Patience(10));
        EXPECT_EQ(Gather(*communicator).message(), "");
        EXPECT_EQ(Gather(*communicator, 1 + rank).code(), collops::ERROR_RANK_MISMATCH);
      }
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

TEST(AbortEndsTheCallsOfAllRanks) {
  ranks::Run(3, [](int rank, Communicator& communicator) {
    EXPECT_EQ(Gather(communicator).message(), "");
    if (rank == 2) {
      usleep(100000);
      return communicator.Abort("enough");
    }
    const Status status = Gather(communicator);
    EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
    EXPECT_CONTAINS(status.message(), "enough");
  });
}

TEST(AnInterruptEndsTheWaitAndIsReportedToTheOthers) {
  const ranks::Event interrupted;
  ranks::Run(2, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(Gather(communicator).message(), "");
    if (rank == 0) {
      collops::InterruptCheckSlot().store([] { return true; });
      EXPECT_EQ(Gather(communicator).code(), collops::ERROR_ABORTED);
      interrupted.Set();
    } else {
      interrupted.Wait();
      const Status status = Gather(communicator);
      EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
      EXPECT_CONTAINS(status.message(), "rank 0 was interrupted");
    }
  });
}

TEST(ASecondThreadGetsAnError) {
  const ranks::Event told;
  ranks::Run(2, [&](int rank, Communicator& communicator) {
    static std::atomic<bool> waits{false};
    EXPECT_EQ(Gather(communicator).message(), "");
    if (rank == 1) told.Wait();
    std::thread second;
    if (rank == 0) {
      // A call that waits calls this.
      collops::InterruptCheckSlot().store([] {
        waits = true;
        return false;
      });
      second = std::thread([&] {
        while (!waits) usleep(1000);
        const Status status = Gather(communicator);
        EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
        EXPECT_CONTAINS(status.message(), "another thread");
        told.Set();
      });
    }
    EXPECT_EQ(Gather(communicator).message(), "");
    if (rank == 0) second.join();
  });
}

TEST(AWindowLargerThanTheMemoryIsAnError) {
  const auto communicator = ranks::Make(ranks::FreshJob(), 0, 1);
  std::shared_ptr<collops::Window> window;
  const Status status = communicator->AllocateWindow(int64_t{1} << 46, &window);
  EXPECT_EQ(status.code(), collops::ERROR_OUT_OF_HOST_MEMORY);
  EXPECT_CONTAINS(status.message(), "are available");
}

TEST(AForkedChildCannotUseOrCloseTheParentsCommunicator) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    EXPECT_EQ(Gather(communicator).message(), "");
    if (rank == 0) {
      const pid_t child = ranks::Start([&] {
        EXPECT_CONTAINS(Gather(communicator).message(), "after fork()");
        communicator.Close("the child ends");
        communicator.Abort("the child ends");
      });
      EXPECT_EQ(ranks::Wait(child).code, 0);
    }
    EXPECT_EQ(Gather(communicator).message(), "");
  });
}
