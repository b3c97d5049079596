// Rank tables that are not complete when a communicator is made.
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"
#include "collops/comm/backends/backend_table.h"
#include "collops/comm/placement/rank_table.h"
#include "placement/tables.h"
#include "ranks.h"

namespace {

using collops::RankTable;
using collops::Status;

constexpr const char* kInitializing = R"({"status": "initializing"})";

std::shared_ptr<collops::Communicator> Make(const std::string& path, int rank, int rank_size,
                                            double timeout_s = check::Patience(20.0)) {
  collops::CommunicatorSpec spec;
  spec.backend = "shm";
  spec.rank = rank;
  spec.rank_size = rank_size;
  spec.timeout_s = timeout_s;
  RankTable table;
  EXPECT_EQ(collops::ReadRankTable(path, &table).message(), "");
  spec.table = std::make_shared<const RankTable>(table);
  std::shared_ptr<collops::Communicator> communicator;
  EXPECT_EQ(collops::FindBackend("shm")->create(spec, &communicator).message(), "");
  return communicator;
}

// Two ranks that wait for `path`, and the start of what each is told.
void RunWaiting(const std::string& path, const std::function<void()>& meanwhile,
                const std::string& message, double timeout_s = check::Patience(20.0)) {
  setenv("COLLOPS_SERVER_ID", "node-a", 1);
  unsetenv("COLLOPS_JOB_ID");
  const ranks::Event made;
  std::vector<pid_t> pids;
  for (const int rank : {0, 1}) {
    pids.push_back(ranks::Start([&, rank] {
      const auto communicator = Make(path, rank, 2, timeout_s);
      made.Set();
      const Status status = communicator->Barrier();
      if (message.empty()) {
        EXPECT_EQ(status.message(), "");
      } else {
        EXPECT_CONTAINS(status.message(), message);
      }
    }));
  }
  made.Wait(2);
  meanwhile();
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

}  // namespace

// One rank has read it before it was complete, the other one after.
TEST(ASubgroupKnowsTheJobByTheCompleteTable) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", kInitializing);
  setenv("COLLOPS_SERVER_ID", "node-a", 1);
  unsetenv("COLLOPS_JOB_ID");
  const ranks::Event made;
  const ranks::Event complete;
  std::vector<pid_t> pids;
  for (const int rank : {0, 1}) {
    pids.push_back(ranks::Start([&, rank] {
      if (rank == 1) complete.Wait();
      const auto communicator = Make(path, rank, 2);
      made.Set();
      std::shared_ptr<collops::Communicator> subgroup;
      EXPECT_EQ(communicator->Split(0, 0, &subgroup).message(), "");
      subgroup->set_timeout_s(5);
      EXPECT_EQ(subgroup->Barrier().message(), "");
    }));
  }
  made.Wait();
  folder.Write("t.json", tables::kOneServer);
  complete.Set();
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

// It is written in place, and read in the middle.
TEST(HalfATableIsReadAgain) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", kInitializing);
  RunWaiting(
      path,
      [&] {
        const std::string text = tables::kOneServer;
        std::ofstream file(path);
        file << text.substr(0, 40) << std::flush;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        file << text.substr(40);
      },
      "");
}

TEST(ATableThatTurnsOutToContradictTheRankEndsFirstContact) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", kInitializing);
  RunWaiting(
      path, [&] { folder.Write("t.json", tables::kTwoServers); }, "rankSize is 2, but rank table");
}

TEST(RanksOnSeveralHostsAreRefused) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", kInitializing);
  setenv("COLLOPS_SERVER_ID", "node-a", 1);
  const auto communicator = Make(path, 0, 2);
  folder.Write("t.json", tables::kSuperPods);
  const Status status = communicator->Barrier();
  EXPECT_EQ(status.code(), collops::ERROR_UNSUPPORTED);
  EXPECT_CONTAINS(status.message(), "backend shm runs on one host, but rank table");
}

TEST(ATableThatIsNeverCompleteIsATimeOut) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", kInitializing);
  RunWaiting(path, [] {}, "was not complete in 0.3 s: its status is \"initializing\"", 0.3);
}
