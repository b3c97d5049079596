// Communicator::Split of ranks on several hosts, here processes that name different hosts.
#include <sys/resource.h>

#include <cstdlib>

#include "collops/comm/backends/ucx/communicator.h"
#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "control/first_contact/loopback.h"
#include "ranks.h"
#include "ucx/installed.h"

namespace {

using namespace collops;
using collops::control::Control;

const double kTimeoutS = check::Patience(20);

// This process as the rank on host `rank` of two, at a port that was free.
std::shared_ptr<Communicator> Join(int rank, int port) {
  setenv("COLLOPS_SERVER_ID", std::to_string(rank).c_str(), 1);
  setenv("COLLOPS_PORT", std::to_string(port).c_str(), 1);
  CommunicatorSpec spec;
  spec.backend = "ucx";
  spec.rank = rank;
  spec.rank_size = 2;
  spec.timeout_s = kTimeoutS;
  JobIdentity job;
  EXPECT_EQ(FindJobIdentity(&job).message(), "");
  std::unique_ptr<control::Meeting> meeting;
  const collops::JobPlace place = {"127.0.0.1", 0, rank == 0, ""};
  const Status made = control::HostsMeeting::Create(
      spec, job, place, nullptr, control::Board::Bytes(spec.rank_size), &meeting);
  EXPECT_EQ(made.message(), "");
  return std::make_shared<ucx::UcxCommunicator>(
      std::make_shared<Control>(spec, std::move(meeting)));
}

void OnTwoHosts(const std::function<void(int rank, Communicator& communicator)>& body) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  const int port = loopback::ListenAt("127.0.0.1").address().port();
  std::vector<pid_t> pids;
  for (const int rank : {0, 1}) {
    pids.push_back(ranks::Start([&] {
      if (!ucx_tests::IsThere()) return void(std::puts("skipped: no UCX is installed"));
      body(rank, *Join(rank, port));
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid, 3 * kTimeoutS).code, 0);
}

}  // namespace

// No descriptor is left for a listener: this rank refuses the split, and the next one is good.
TEST(ARankThatCannotListenRefusesTheSplit) {
  OnTwoHosts([](int rank, Communicator& communicator) {
    // UBSan opens a pipe when it first meets a class: it meets those of a split and of a text now.
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(communicator.Split(0, 0, &part).message(), "");
    EXPECT_FALSE(collops::Concat("a text ", rank).empty());
    part.reset();
    EXPECT_EQ(communicator.Barrier().message(), "");
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none = {3, limit.rlim_max};
    if (rank == 1) setrlimit(RLIMIT_NOFILE, &none);
    const Status refused = communicator.Split(0, 0, &part);
    EXPECT_FALSE(refused.ok());
    EXPECT_TRUE(part == nullptr);
    if (rank == 0) EXPECT_EQ(refused.code(), ERROR_RANK_MISMATCH);
    if (rank == 0) EXPECT_CONTAINS(refused.message(), "rank 1 (pid ");
    setrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_EQ(communicator.Split(0, 0, &part).message(), "");
    EXPECT_EQ(part->Barrier().message(), "");
  });
}
