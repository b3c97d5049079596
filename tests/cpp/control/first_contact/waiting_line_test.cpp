// What a rank writes to standard error when first contact takes long.
#include <sys/mman.h>

#include <algorithm>

#include "control/first_contact/ranks_that_meet.h"
#include "ranks.h"

namespace {

using collops::JobIdentity;
using collops::Status;

// Redirects standard error of this process to memory that other processes can read.
class SavedErrors {
 public:
  SavedErrors() : file_(memfd_create("stderr", MFD_CLOEXEC)) {}
  void Begin() const { EXPECT_EQ(dup2(file_, STDERR_FILENO), STDERR_FILENO); }
  std::string Text() const {
    std::string text(4096, '\0');
    const ssize_t bytes = pread(file_, text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
    return text;
  }

 private:
  int file_;
};

// A rank that waits 11 s in vain; `errors` then contains what it has written.
pid_t StartWaiter(const JobIdentity& job, int rank, int rank_size, const SavedErrors& errors,
                  const std::string& missing) {
  return ranks::Start([&, rank, rank_size, missing] {
    errors.Begin();
    const Status status = ranks::Make(job, rank, rank_size, 11)->Connect();
    EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), missing);
    EXPECT_CONTAINS(status.message(), "first contact of job " + job.id + ", from " + job.source);
  });
}

}  // namespace

TEST(AfterTenSecondsAWaitingRankSaysForWhomOnce) {
  JobIdentity alone = ranks::FreshJob();
  alone.source = "multiprocessing";
  const JobIdentity three = ranks::FreshJob();
  const JobIdentity headless = ranks::FreshJob();
  const JobIdentity silent = ranks::FreshJob();
  const SavedErrors of_alone, of_leader, of_member, of_headless, of_silent;
  const ranks::Event listens, done;
  const pid_t passive = ranks::Start([&] {
    const auto communicator = ranks::Make(silent, 0, 2, check::Patience(20));
    listens.Set();
    done.Wait();
  });
  listens.Wait();
  const std::vector<pid_t> pids = {
      StartWaiter(alone, 0, 2, of_alone, "rank 1 of 2 did not connect within 11 s"),
      StartWaiter(three, 0, 4, of_leader, "rank"),
      StartWaiter(three, 1, 4, of_member, "rank"),
      StartWaiter(headless, 1, 2, of_headless, "rank 0 of 2 did not connect within 11 s"),
      StartWaiter(silent, 1, 2, of_silent, "has made no call within 11 s"),
  };
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
  done.Set();
  EXPECT_EQ(ranks::Wait(passive).code, 0);
  EXPECT_EQ(of_alone.Text(),
            "collops: rank 0: waiting for rank 1 of 2 (job " + alone.id +
                ", from multiprocessing; set COLLOPS_JOB_ID to meet other processes)\n");
  for (const SavedErrors* errors : {&of_leader, &of_member}) {
    const std::string text = errors->Text();
    EXPECT_CONTAINS(text, ": waiting for ranks 2, 3 of 4 (job " + three.id);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  }
  EXPECT_CONTAINS(of_headless.Text(), "rank 1: waiting for rank 0 of 2 (job ");
  EXPECT_CONTAINS(of_silent.Text(), "rank 1: waiting for rank 0 of 2, pid " +
                                        std::to_string(passive) + ", which has made no call (job ");
}

// On several hosts: rank 0, a rank that speaks for its host, and one that follows it. Rank 3 has
// another key, and rank 4 asks where rank 0 is, and ends.
TEST(AfterTenSecondsEachRankSaysWhatRank0KnowsOfTheMissing) {
  const int port = loopback::FreePort();
  const auto spec_of = [port](int rank) {
    loopback::RendezvousSpec spec = loopback::SpecOf(rank, 5, port);
    spec.comm_domain = "dp";
    spec.job = "job X, from Y";
    spec.hosts = {"node1, 127.0.0.1", "node1, 127.0.0.1", "node1, 127.0.0.1", "node2", "node2"};
    return spec;
  };
  const SavedErrors errors[3];
  std::string known =
      "; the rank table places ranks 3, 4 on node2; rank 4 (on " + collops::control::HostName() +
      ", 127.0.0.1) asked at the job's port, and did not come; turned away: 127.0.0.1, which says "
      "it is rank 3 on " +
      collops::control::HostName() + " and has another key";
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      errors[rank].Begin();
      const Status status = loopback::Meet(spec_of(rank), check::Patience(12));
      EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
      EXPECT_CONTAINS(status.message(), "ranks 3, 4 of 5 did not connect within");
      EXPECT_CONTAINS(status.message(), known);
    }));
  }
  loopback::RendezvousSpec stranger = spec_of(3);
  stranger.secret.key = "another key";
  EXPECT_CONTAINS(loopback::Meet(stranger).message(), "it has another key");
  loopback::AskAndEnd(spec_of(4));
  loopback::ExpectWell(pids);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(errors[rank].Text(), "collops: rank " + std::to_string(rank) +
                                       " of comm_domain \"dp\": waiting for ranks 3, 4 of 5 (job "
                                       "X, from Y)" +
                                       known + "\n");
  }
}

// Nobody listens at the job's port.
TEST(AfterTenSecondsARankSaysWhyItHasNotReachedRank0) {
  const int port = loopback::FreePort();
  const SavedErrors errors;
  const pid_t pid = ranks::Start([&] {
    errors.Begin();
    loopback::RendezvousSpec spec = loopback::SpecOf(1, 2, port);
    spec.job = "job X, from Y";
    EXPECT_EQ(loopback::Meet(spec, 11).code(), collops::ERROR_TIMEOUT);
  });
  loopback::ExpectWell({pid});
  const std::string at = "127.0.0.1:" + std::to_string(port);
  EXPECT_CONTAINS(errors.Text(),
                  "collops: rank 1: waiting for rank 0 of 2 at 127.0.0.1 (job X, from Y): ");
  EXPECT_CONTAINS(errors.Text(), at);
}

TEST(AfterTenSecondsACallSaysForWhomItWaitsOnce) {
  const JobIdentity job = ranks::FreshJob();
  const SavedErrors errors;
  const ranks::Event done;
  const pid_t late = ranks::Start([&] {
    const auto communicator = ranks::Make(job, 1, 2, check::Patience(30));
    EXPECT_EQ(communicator->Connect().message(), "");
    done.Wait();
    EXPECT_EQ(communicator->Barrier().message(), "");
  });
  const pid_t waits = ranks::Start([&] {
    errors.Begin();
    const auto communicator = ranks::Make(job, 0, 2, check::Patience(30));
    EXPECT_EQ(communicator->Barrier().message(), "");
  });
  for (int i = 0; i < check::Patience(250) && errors.Text().empty(); ++i) usleep(100000);
  sleep(1);
  done.Set();
  EXPECT_EQ(ranks::Wait(waits).code, 0);
  EXPECT_EQ(ranks::Wait(late).code, 0);
  // It looks up now and then while it waits, and may be found running then.
  const std::string before =
      "collops: rank 0: barrier: call 1: waiting for rank 1 (pid " + std::to_string(late) + "), ";
  const std::string after = ", has not entered it\n";
  const std::string text = errors.Text();
  EXPECT_TRUE(text == before + "sleeping" + after || text == before + "running" + after);
}
