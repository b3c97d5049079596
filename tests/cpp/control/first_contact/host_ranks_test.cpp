// Ranks of a group on two hosts: those of each host meet, and know of the others.
#include "collops/comm/control/first_contact/hosts_meeting.h"

#include <poll.h>

#include <string>
#include <vector>

#include "check.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/endpoint.h"
#include "ranks.h"

namespace {

using collops::Deadline;
using collops::Status;
using collops::control::Group;
using collops::control::HostRanks;
using collops::control::HostsMeeting;
using collops::control::Row;

constexpr int64_t kBytes = 8192;

// Round robin: ranks 0, 2, 4 on host 0 and 1, 3 on host 1.
std::vector<Row> Placed(int rank_size = 5) {
  std::vector<Row> rows(static_cast<size_t>(rank_size));
  for (int r = 0; r < rank_size; ++r) {
    Row& row = rows[static_cast<size_t>(r)];
    row.rank = r;
    row.pid = 1000 + r;
    row.host = r % 2 == 0 ? "node-a" : "node-b";
  }
  return rows;
}

collops::control::GroupSpec SpecOf(int rank) {
  collops::CommunicatorSpec spec;
  spec.backend = "toy";
  spec.rank = rank;
  spec.rank_size = 5;
  return spec;
}

HostRanks Make(const collops::JobIdentity& job, int rank) {
  return HostRanks(SpecOf(rank), job, Placed(), rank % 2 == 0 ? "node-a" : "node-b", kBytes);
}

// What one rank finds; the first two bytes of the segment count the ranks that came.
void Meet(const collops::JobIdentity& job, int rank, const ranks::Event& written,
          const ranks::Event& look) {
  HostRanks meeting = Make(job, rank);
  meeting.Begin();
  Group group;
  EXPECT_EQ(meeting.Complete(Deadline::After(check::Patience(20)), &group).message(), "");
  EXPECT_EQ(group.host, rank % 2);
  EXPECT_EQ(group.peers.size(), 5);
  for (int r = 0; r < 5; ++r) {
    const auto& peer = group.peers[static_cast<size_t>(r)];
    EXPECT_EQ(peer.host, r % 2);
    EXPECT_EQ(peer.mailbox.valid(), r % 2 == rank % 2);
    if (r == rank) EXPECT_EQ(peer.pid, getpid());
    if (r % 2 != rank % 2) EXPECT_EQ(peer.pid, 1000 + r);
  }
  static_cast<std::byte*>(group.segment.data())[rank] = std::byte{1};
  // The last rank of each host rings, the first one hears it.
  if (rank >= 3) collops::control::RingDoorbell(group.doorbell.get());
  written.Set();
  look.Wait();
  for (int r = 0; r < 5; ++r) {
    EXPECT_EQ(static_cast<std::byte*>(group.segment.data())[r] == std::byte{1}, r % 2 == rank % 2);
  }
  pollfd doorbell = {group.doorbell.get(), POLLIN, 0};
  EXPECT_EQ(poll(&doorbell, 1, 0), 1);
}

}  // namespace

TEST(RanksOfAHostShareMemoryAndABellAndKnowTheOthers) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event written, look;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 5; ++rank) {
    pids.push_back(ranks::Start([&, rank] { Meet(job, rank, written, look); }));
  }
  written.Wait(5);
  look.Set(5);
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

TEST(ARankThatIsMissingIsNamedWithItsHost) {
  HostRanks meeting = Make(ranks::FreshJob(), 2);
  meeting.Begin();
  Group group;
  const Status status = meeting.Complete(Deadline::After(0.2), &group);
  EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
  EXPECT_CONTAINS(status.message(),
                  "ranks 0, 2, 4 of host node-a, there numbered 0 to 2: rank 0 of");
}

TEST(AMeetingThatIsStoppedEndsTheMeetingOfItsHost) {
  collops::control::GroupSpec spec = SpecOf(0);
  spec.introduction = std::make_shared<collops::control::Introduction>();
  spec.introduction->rows = Placed();
  const auto lobby = std::make_shared<collops::control::Lobby>(
      std::make_unique<collops::control::JobListener>(collops::control::JobSecret{}));
  spec.introduction->lobby = lobby;
  HostsMeeting meeting(spec, ranks::FreshJob(), kBytes);
  meeting.Begin();
  meeting.Stop();
  Group group;
  EXPECT_EQ(meeting.Complete(Deadline::After(check::Patience(20)), &group).code(),
            collops::ERROR_ABORTED);
}

// A group on several hosts may have many ranks, each host of it no more than a group on one host.
TEST(TooManyRanksAreRefused) {
  using collops::control::Control;
  using collops::control::Reach;
  collops::CommunicatorSpec spec;
  spec.backend = "toy";
  spec.rank_size = 130;
  std::vector<Row> rows(130);
  rows.back().host = "node-b";
  HostRanks meeting(spec, ranks::FreshJob(), rows, "node-a", kBytes);
  Group group;
  const Status host = meeting.Complete(Deadline::After(check::Patience(20)), &group);
  EXPECT_EQ(host.code(), collops::ERROR_UNSUPPORTED);
  EXPECT_EQ(host.message(), "host node-a has 129 ranks of the group: at most 128 on a host");
  std::shared_ptr<Control> control;
  const auto create = [&](int rank_size, Reach reach) {
    spec.rank_size = rank_size;
    spec.job_id = "a job";
    return Control::Create(spec, 0, &control, reach).message();
  };
  EXPECT_EQ(create(4097, Reach::kHosts), "backend toy: at most 4096 ranks, got rankSize 4097");
  const std::string one_host = "backend toy: at most 128 ranks on a host, got rankSize 129";
  EXPECT_EQ(create(129, Reach::kOneHost), one_host);
  EXPECT_EQ(create(129, Reach::kHosts), one_host);  // no other host is named
}
