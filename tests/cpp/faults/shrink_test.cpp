// Ranks are killed at moments drawn from the calls of a group to the end of its shrinking, or
// stopped: those that are left get one group, with the right sums. COLLOPS_ALL_FAULTS=1: 200 draws
// instead of 20.
#include <sys/mman.h>

#include <chrono>
#include <csignal>
#include <random>

#include "faults/ways.h"
#include "proc.h"
#include "ranks.h"

namespace {

using collops::Communicator;
using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 7;
// From the moment a rank has the error to the end of the new group's first call.
const double kAtOnceS = check::Patience(3.0);

// What the processes of a draw see.
struct Common {
  std::atomic<int> met;
  std::atomic<int> shrinking;     // ranks that have the error of their call
  std::atomic<int> gone_on;       // ranks that have made the first call of the last group
  std::atomic<int64_t> error_ns;  // when the last rank got its error
  std::atomic<int64_t> most_us;   // from there to a new group's first call
};
Common& Shared() {
  static void* const memory =
      mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *static_cast<Common*>(memory);
}

int64_t NowNs() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

template <typename T>
void RaiseTo(std::atomic<T>* most, T value) {
  T before = most->load();
  while (before < value && !most->compare_exchange_weak(before, value)) continue;
}

collops::Status CallOf(size_t number, Communicator& comm, bool in_window) {
  const ways::Way& way = ways::All()[number];
  const int size = comm.size();
  std::vector<int32_t> plain(static_cast<size_t>(way.x_elements(size)));
  std::vector<int32_t> output(static_cast<size_t>(way.output_elements(size)), -7);
  std::shared_ptr<collops::Window> window;
  int32_t* x = plain.data();
  if (in_window) {
    COLLOPS_RETURN_IF_ERROR(comm.AllocateWindow(way.x_elements(size) * 4, &window));
    x = static_cast<int32_t*>(window->data());
  }
  way.Fill(comm.rank(), size, x);
  COLLOPS_RETURN_IF_ERROR(way.Call(comm, x, output.data()));
  EXPECT_EQ(way.Wrong(comm.rank(), size, output.data()), 0);
  return collops::Ok();
}

// One rank, which calls until so many are left; and the ranks of the last group as the first one
// numbers them.
void CallUntilLeft(const collops::JobIdentity& job, int rank, int size, int left) {
  std::shared_ptr<Communicator> comm = ranks::Make(job, rank, size, check::Patience(40.0));
  EXPECT_EQ(comm->Connect().message(), "");
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  ++Shared().met;
  std::mt19937 draw(17);  // the same calls on all ranks
  int64_t shrunk = 0;
  while (true) {
    const size_t number = draw() % 8;
    const bool in_window = draw() % 2 == 0;
    const collops::Status status = CallOf(number, *comm, in_window);
    if (status.ok()) {
      const int64_t took_us = (NowNs() - Shared().error_ns) / 1000;
      if (shrunk != 0) RaiseTo(&Shared().most_us, took_us);
      shrunk = 0;
      if (comm->size() == left) break;
      continue;
    }
    EXPECT_TRUE(status.code() == collops::ERROR_PEER_LOST ||
                status.code() == collops::ERROR_ABORTED);
    ++Shared().shrinking;
    RaiseTo(&Shared().error_ns, NowNs());
    std::shared_ptr<Communicator> next;
    const collops::Status made = comm->Shrink({}, 0, &next);
    EXPECT_EQ(made.message(), "");
    if (!made.ok()) return;
    std::vector<int> numbers;
    for (const int old : next->old_ranks()) numbers.push_back(members[static_cast<size_t>(old)]);
    members = numbers;
    EXPECT_EQ(members[static_cast<size_t>(next->rank())], rank);
    EXPECT_TRUE(comm->failed());
    comm = next;
    draw.seed(static_cast<unsigned>(comm->size()));
    shrunk = NowNs();
  }
  for (size_t number = 0; number < 8; ++number) {
    EXPECT_EQ(CallOf(number, *comm, number % 2 == 0).message(), "");
  }
  EXPECT_EQ(comm->Barrier().message(), "");
  comm->Close("it is through");
}

void Sleep(int64_t us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

int64_t Draw(unsigned seed) {
  std::mt19937 draw(seed);
  const int size = 2 + static_cast<int>(draw() % (kMostRanks - 1));
  const int most_killed = std::min(size - 1, 3);
  const int killed = 1 + static_cast<int>(draw() % static_cast<unsigned>(most_killed));
  std::vector<int> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), draw);
  // Rank 0, which leads first contact, often; of the new group too.
  if (draw() % 3 == 0) std::sort(order.begin(), order.end());
  const collops::JobIdentity job = ranks::FreshJob();
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  new (&Shared()) Common{};
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    pids.push_back(ranks::Start([&, rank] { CallUntilLeft(job, rank, size, size - killed); }));
  }
  const auto end = Clock::now() + std::chrono::duration<double>(check::Patience(30.0));
  while (Shared().met < size && Clock::now() < end) Sleep(100);
  Sleep(static_cast<int64_t>(draw() % 5000));
  for (int i = 0; i < killed; ++i) {
    const int before = Shared().shrinking;
    kill(pids[static_cast<size_t>(order[static_cast<size_t>(i)])], SIGKILL);
    // The next one at once, in the call that fails, or at any moment of shrinking.
    const bool in_shrink = draw() % 4 != 0;
    const auto seen = Clock::now() + std::chrono::milliseconds(100);
    while (in_shrink && Shared().shrinking == before && Clock::now() < seen) Sleep(50);
    Sleep(static_cast<int64_t>(draw() % 8000));
  }
  for (int rank = 0; rank < size; ++rank) {
    const bool dead =
        std::find(order.begin(), order.begin() + killed, rank) != order.begin() + killed;
    const ranks::Ended ended = ranks::Wait(pids[static_cast<size_t>(rank)]);
    EXPECT_EQ(ended.exited, !dead);
    EXPECT_EQ(ended.code, 0);
  }
  return Shared().most_us;
}

}  // namespace

TEST(KilledAtMomentsOfCallsAndOfShrinking) {
  const unsigned draws = std::getenv("COLLOPS_ALL_FAULTS") != nullptr ? 200 : 20;
  const char* const first = std::getenv("COLLOPS_SHRINK_SEED");
  const unsigned begin = first != nullptr ? static_cast<unsigned>(std::atoi(first)) : 0;
  int64_t most_us = 0;
  for (unsigned seed = begin; seed < begin + draws; ++seed) {
    const int failures = check::Failures();
    const int64_t took_us = Draw(seed);
    most_us = std::max(most_us, took_us);
    if (check::Failures() != failures) std::printf("  seed %u\n", seed);
  }
  std::printf("  the last new group's first call ended at most %.1f ms after the last error\n",
              static_cast<double>(most_us) * 1e-3);
  EXPECT_TRUE(static_cast<double>(most_us) * 1e-6 < kAtOnceS);
}

// A rank that is stopped is left out after the time-out, and gets an error when it goes on.
TEST(AStoppedRankIsLeftOutAndLearnsIt) {
  for (const int stopped : {0, 2}) {
    const collops::JobIdentity job = ranks::FreshJob();
    setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
    new (&Shared()) Common{};
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 4; ++rank) {
      pids.push_back(ranks::Start([&, rank] {
        const auto comm = ranks::Make(job, rank, 4, check::Patience(40.0));
        EXPECT_EQ(comm->Barrier().message(), "");
        ++Shared().met;
        std::shared_ptr<Communicator> next;
        if (rank == stopped) {
          raise(SIGSTOP);
          EXPECT_FALSE(comm->Barrier().ok());
          const collops::Status late = comm->Shrink({}, 0, &next);
          EXPECT_EQ(late.code(), collops::ERROR_TIMEOUT);
          EXPECT_CONTAINS(late.message(), "the other ranks go on without rank");
          ++Shared().shrinking;
          return;
        }
        while (Shared().met < 4) Sleep(100);
        comm->Abort("it waits no longer");
        EXPECT_EQ(comm->Shrink({}, check::Patience(1.0), &next).message(), "");
        ASSERT_TRUE(next != nullptr);
        EXPECT_EQ(next->size(), 3);
        EXPECT_EQ(CallOf(1, *next, false).message(), "");
        ++Shared().gone_on;
        // The new group is not disturbed while the old rank goes on.
        for (int i = 0; i < 50; ++i) EXPECT_EQ(CallOf(2, *next, i % 2 == 0).message(), "");
        while (Shared().shrinking == 0) Sleep(100);
        EXPECT_EQ(next->Barrier().message(), "");
      }));
    }
    const auto end = Clock::now() + std::chrono::duration<double>(check::Patience(30.0));
    while (Shared().gone_on < 3 && Clock::now() < end) Sleep(1000);
    kill(pids[static_cast<size_t>(stopped)], SIGCONT);
    for (const pid_t pid : pids) {
      const ranks::Ended ended = ranks::Wait(pid);
      EXPECT_TRUE(ended.exited);
      EXPECT_EQ(ended.code, 0);
    }
  }
}

TEST(RanksThatHaveNotMetDoNotKnowWhoIsLeft) {
  const collops::JobIdentity job = ranks::FreshJob();
  const auto comm = ranks::Make(job, 0, 2);
  std::shared_ptr<Communicator> next;
  const collops::Status status = comm->Shrink({}, 0, &next);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(), "shrink: the ranks of this communicator have not met");
}
