// Ranks and new processes are killed at moments drawn from the growing of a group to the calls
// after it; whoever is killed is started anew, and joins. In the end all are in one group again,
// with the right sums. COLLOPS_ALL_FAULTS=1: 200 draws instead of 20.
#include <sys/mman.h>

#include <chrono>
#include <csignal>
#include <random>
#include <set>

#include "collops/comm/control/first_contact/entrance.h"
#include "collops/comm/registry.h"
#include "faults/ways.h"
#include "proc.h"
#include "ranks.h"

namespace {

using collops::Communicator;
using collops::Status;
using Clock = std::chrono::steady_clock;

// What the processes of a draw see.
struct Common {
  std::atomic<int> met;      // members of the first group
  std::atomic<int> growing;  // how often a process has begun to grow or to join
  std::atomic<int> stop;     // the last one was killed, and started anew
};
Common& Shared() {
  static void* const memory =
      mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *static_cast<Common*>(memory);
}

void Sleep(int64_t us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

Status CallOf(size_t number, Communicator& comm) {
  const ways::Way& way = ways::All()[number % 8];
  const int size = comm.size();
  std::vector<int32_t> plain(static_cast<size_t>(way.x_elements(size)));
  std::vector<int32_t> output(static_cast<size_t>(way.output_elements(size)), -7);
  std::shared_ptr<collops::Window> window;
  int32_t* x = plain.data();
  if (number % 2 == 0) {
    COLLOPS_RETURN_IF_ERROR(comm.AllocateWindow(way.x_elements(size) * 4, &window));
    x = static_cast<int32_t*>(window->data());
  }
  way.Fill(comm.rank(), size, x);
  COLLOPS_RETURN_IF_ERROR(way.Call(comm, x, output.data()));
  EXPECT_EQ(way.Wrong(comm.rank(), size, output.data()), 0);
  return collops::Ok();
}

// Calls, and asks all ranks whether they are to end: all get one answer.
Status CallAndAsk(Communicator& comm, bool* ends) {
  for (size_t number = 0; number < 4; ++number) {
    COLLOPS_RETURN_IF_ERROR(CallOf(number, comm));
  }
  const std::pair<int64_t, int64_t> own{getpid(), Shared().stop};
  std::vector<std::pair<int64_t, int64_t>> all(static_cast<size_t>(comm.size()));
  COLLOPS_RETURN_IF_ERROR(comm.Share(collops::Agreement("Ask"), &own, sizeof(own), all.data()));
  *ends = true;
  std::set<int64_t> pids;
  for (const auto& [pid, stop] : all) {
    pids.insert(pid);
    *ends = *ends && stop == 1;
  }
  EXPECT_EQ(pids.size(), all.size());
  return collops::Ok();
}

// One process: it grows the group to `size` whenever it is smaller, until all are to end.
void Live(std::shared_ptr<Communicator> comm, int size) {
  while (true) {
    bool ends = false;
    std::shared_ptr<Communicator> next;
    const bool grows = comm->size() < size;
    if (grows) ++Shared().growing;
    const Status status = grows ? comm->Grow(size - comm->size(), check::Patience(40.0), &next)
                                : CallAndAsk(*comm, &ends);
    if (ends) break;
    if (status.ok()) {
      if (grows) comm = next;
      continue;
    }
    const bool lost =
        status.code() == collops::ERROR_PEER_LOST || status.code() == collops::ERROR_ABORTED;
    if (!lost) EXPECT_EQ(status.message(), "");
    if (!lost) return;
    const Status made = comm->Shrink({}, check::Patience(40.0), &next);
    EXPECT_EQ(made.message(), "");
    if (!made.ok()) return;
    comm = next;
  }
  comm->Close("it is through");
}

Status Join(double timeout_s, std::shared_ptr<Communicator>* joined) {
  collops::CommunicatorSpec spec;
  spec.backend = "shm";
  spec.timeout_s = timeout_s;
  return Communicator::Join(spec, joined);
}

void JoinAndLive(int size) {
  ++Shared().growing;
  std::shared_ptr<Communicator> comm;
  const Status joined = Join(check::Patience(40.0), &comm);
  EXPECT_EQ(joined.message(), "");
  if (joined.ok()) Live(std::move(comm), size);
}

void Draw(unsigned seed) {
  std::mt19937 draw(seed);
  const int members = 1 + static_cast<int>(draw() % 3);
  const int size = members + 1 + static_cast<int>(draw() % 2);
  const int killed = 1 + static_cast<int>(draw() % 3);
  const collops::JobIdentity job = ranks::FreshJob();
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  new (&Shared()) Common{};
  std::vector<pid_t> pids;
  for (int i = 0; i < size; ++i) {
    pids.push_back(ranks::Start([&, i] {
      if (i >= members) return JoinAndLive(size);
      const auto comm = ranks::Make(job, i, members, check::Patience(40.0));
      EXPECT_EQ(comm->Connect().message(), "");
      ++Shared().met;
      Live(comm, size);
    }));
  }
  const auto met_by = Clock::now() + std::chrono::duration<double>(check::Patience(30.0));
  while (Shared().met < members && Clock::now() < met_by) Sleep(100);
  // One of the members stays, so that there is a group all the time.
  const int stays = static_cast<int>(draw() % static_cast<unsigned>(members));
  for (int i = 0; i < killed; ++i) {
    const int begun = Shared().growing;
    const auto end = Clock::now() + std::chrono::milliseconds(200);
    while (Shared().growing < begun + 2 && Clock::now() < end) Sleep(50);
    Sleep(static_cast<int64_t>(draw() % 12000));
    const int other = static_cast<int>(draw() % static_cast<unsigned>(size - 1));
    const auto victim = static_cast<size_t>(other < stays ? other : other + 1);
    kill(pids[victim], SIGKILL);
    EXPECT_FALSE(ranks::Wait(pids[victim]).exited);
    pids[victim] = ranks::Start([size] { JoinAndLive(size); });
  }
  Shared().stop = 1;
  for (const pid_t pid : pids) {
    const ranks::Ended ended = ranks::Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

}  // namespace

TEST(KilledAtMomentsOfGrowing) {
  const unsigned draws = std::getenv("COLLOPS_ALL_FAULTS") != nullptr ? 200 : 20;
  const char* const first = std::getenv("COLLOPS_GROW_SEED");
  const unsigned begin = first != nullptr ? static_cast<unsigned>(std::atoi(first)) : 0;
  for (unsigned seed = begin; seed < begin + draws; ++seed) {
    const int failures = check::Failures();
    Draw(seed);
    if (check::Failures() != failures) std::printf("  seed %u\n", seed);
  }
}

// One that has said hello and is stopped: the members hear it after the time-out, and go on.
TEST(AStoppedNewProcessLeavesTheGroupAsItWas) {
  const collops::JobIdentity job = ranks::FreshJob();
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  new (&Shared()) Common{};
  const pid_t stopped = ranks::Start([] {
    collops::control::GroupSpec spec;
    spec.backend = "shm";
    std::string name;
    collops::JobIdentity found;
    EXPECT_EQ(collops::control::FindEntrance(spec, &name, &found).message(), "");
    collops::control::Entrant guest(name);
    collops::control::Invitation invitation;
    bool invited = false;
    while (!invited && Shared().stop < 2) {
      EXPECT_EQ(guest.Look(&invitation, &invited).message(), "");
    }
    EXPECT_EQ(invitation.rank, 2);
    while (Shared().stop < 2) Sleep(1000);
  });
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 2; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      const auto comm = ranks::Make(job, rank, 2, check::Patience(40.0));
      std::shared_ptr<Communicator> next;
      const Status late = comm->Grow(1, check::Patience(2.0), &next);
      EXPECT_EQ(late.code(), collops::ERROR_TIMEOUT);
      EXPECT_CONTAINS(late.message(), "1 of 1 new process came within ");
      EXPECT_CONTAINS(late.message(), " s, but they did not meet");
      EXPECT_EQ(CallOf(3, *comm).message(), "");
      ++Shared().stop;
    }));
  }
  pids.push_back(stopped);
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}
