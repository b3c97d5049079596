// A rank that is stopped, held in a debugger, or late by seconds in the middle of a call: the
// others wait, and the result is right once it goes on; at the time-out they say its state.
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <fstream>

#include "collops/core/process/interrupt.h"
#include "faults/doom.h"
#include "faults/ways.h"

namespace {

using collops::Communicator;
using collops::Status;
using doom::Memory;

constexpr int kSize = 3;
// The time-out of one rank. On a busy machine it may come before the victim is held up; the jobs
// then run again with more time.
constexpr double kBriefS = 0.4;
constexpr double kMostBriefS = 7;

void StopHere() {
  doom::Shared().at_ns = doom::NowNs();
  raise(SIGSTOP);
  Memory::Disarm();
}
// Until the debugger has it.
void HoldHere() {
  doom::Shared().at_ns = doom::NowNs();
  while (doom::Shared().released == 0) usleep(1000);
  Memory::Disarm();
}
void BeLateHere() {
  doom::Shared().at_ns = doom::NowNs();
  sleep(2);
  Memory::Disarm();
}

char StateOf(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(") ");
  return name_end == std::string::npos ? '?' : line[name_end + 2];
}

bool Await(const std::function<bool()>& holds) {
  for (int i = 0; i < check::Patience(20000) && !holds(); ++i) usleep(1000);
  return holds();
}

// A job of one call.
struct Running {
  const ways::Way* way;
  int victim;
  std::vector<pid_t> pids;
  pid_t doomed() const { return pids[static_cast<size_t>(victim)]; }
};

// Whether the time-out of this job came before the test saw that the victim is held up.
bool WasEarly() {
  const int64_t held_ns = doom::Shared().held_ns;
  return held_ns == 0 || doom::Shared().deadline_ns < held_ns;
}

// What a rank does: a call of its own data, in which the victim is held up. `brief_s`: the time-out
// of one of the others; 0: there is none.
void CallOnce(const ways::Way& way, int victim, doom::Touched touched, double brief_s,
              Communicator& comm) {
  EXPECT_EQ(comm.Barrier().message(), "");
  const bool is_victim = comm.rank() == victim;
  const bool is_brief = brief_s > 0 && comm.rank() == (victim + 1) % kSize;
  if (is_brief) comm.set_timeout_s(brief_s);
  Memory x(way.x_elements(kSize) * 4, is_victim ? touched : nullptr);
  Memory output(way.output_elements(kSize) * 4);
  way.Fill(comm.rank(), kSize, x.data());
  x.Arm();
  if (is_brief) doom::Shared().deadline_ns = doom::NowNs() + static_cast<int64_t>(brief_s * 1e9);
  const Status status = way.Call(comm, x.data(), output.data());
  if (brief_s == 0) {
    EXPECT_EQ(status.message(), "");
    EXPECT_EQ(way.Wrong(comm.rank(), kSize, output.data()), 0);
    EXPECT_EQ(comm.Barrier().message(), "");
    return;
  }
  // The messages of the third rank may be over before the victim is held up.
  const bool may_be_over = std::string(way.op) == "exchange" && !is_victim && !is_brief;
  if (may_be_over && status.ok()) return;
  EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
  if (is_brief && WasEarly()) doom::Shared().early = 1;
  if (!is_victim && !WasEarly()) {
    EXPECT_CONTAINS(status.message(), "rank " + std::to_string(victim) + " (pid " +
                                          std::to_string(doom::Shared().victim) + ")");
    EXPECT_CONTAINS(status.message(), "), stopped, ");
  }
}

// The jobs of all ways run at once, because each of them mostly waits.
std::vector<Running> StartAll(doom::Touched touched, double brief_s) {
  std::vector<Running> jobs;
  for (const ways::Way& way : ways::All()) {
    const int victim = static_cast<int>(jobs.size()) % kSize;
    doom::Job() = static_cast<int>(jobs.size());
    doom::Reset();
    const collops::JobIdentity job = ranks::FreshJob();
    Running running{&way, victim, {}};
    for (int rank = 0; rank < kSize; ++rank) {
      running.pids.push_back(ranks::Start([&, rank] {
        if (rank == victim) doom::Shared().victim = getpid();
        CallOnce(way, victim, touched, brief_s, *ranks::Make(job, rank, kSize));
      }));
    }
    jobs.push_back(running);
  }
  return jobs;
}

// Calls `body` once for each job, whose Shared() is that of the job then.
void ForEach(const std::vector<Running>& jobs, const std::function<void(const Running&)>& body) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    doom::Job() = static_cast<int>(i);
    body(jobs[i]);
  }
}

// Until the victim of each job is held up, or the time-out was early.
void AwaitHeldUp(const std::vector<Running>& jobs) {
  ForEach(jobs, [](const Running&) {
    EXPECT_TRUE(Await([] { return doom::Shared().at_ns != 0 || doom::Shared().early != 0; }));
  });
}

bool AnyWasEarly(const std::vector<Running>& jobs) {
  bool any = false;
  ForEach(jobs, [&](const Running&) { any = any || doom::Shared().early != 0; });
  return any;
}

void WaitAll(const std::vector<Running>& jobs, bool without_victims = false) {
  for (const Running& job : jobs) {
    for (const pid_t pid : job.pids) {
      if (without_victims && pid == job.doomed()) continue;
      const ranks::Ended ended = ranks::Wait(pid);
      EXPECT_TRUE(ended.exited);
      EXPECT_EQ(ended.code, 0);
      if (ended.code != 0) std::printf("  in %s\n", job.way->name);
    }
  }
}

// False: a time-out was early.
bool RunStopped(double brief_s) {
  const std::vector<Running> jobs = StartAll(StopHere, brief_s);
  AwaitHeldUp(jobs);
  ForEach(jobs, [](const Running& job) {
    const auto stopped = [&] { return StateOf(job.doomed()) == 'T'; };
    EXPECT_TRUE(Await([&] { return stopped() || doom::Shared().early != 0; }));
    if (stopped()) doom::Shared().held_ns = doom::NowNs();
  });
  brief_s > 0 ? WaitAll(jobs, true) : static_cast<void>(usleep(200000));
  for (const Running& job : jobs) {
    // Again and again: after an early time-out it may stop now.
    EXPECT_TRUE(Await([&] {
      EXPECT_EQ(kill(job.doomed(), SIGCONT), 0);
      return StateOf(job.doomed()) != 'T' && (brief_s == 0 || StateOf(job.doomed()) == 'Z');
    }));
    if (brief_s > 0) EXPECT_EQ(ranks::Wait(job.doomed()).code, 0);
  }
  if (brief_s == 0) WaitAll(jobs);
  return !AnyWasEarly(jobs);
}

// False where the system lets no process trace another one.
bool Attach(const std::vector<Running>& jobs) {
  bool allowed = true;
  ForEach(jobs, [&](const Running& job) {
    if (!allowed || doom::Shared().at_ns == 0) return;
    allowed = ptrace(PTRACE_SEIZE, job.doomed(), nullptr, nullptr) == 0;
    if (!allowed) return;
    EXPECT_EQ(ptrace(PTRACE_INTERRUPT, job.doomed(), nullptr, nullptr), 0);
    EXPECT_EQ(waitpid(job.doomed(), nullptr, 0), job.doomed());
    EXPECT_EQ(StateOf(job.doomed()), 't');
    doom::Shared().held_ns = doom::NowNs();
  });
  return allowed;
}

// False: a time-out was early.
bool RunTraced(double brief_s) {
  const std::vector<Running> jobs = StartAll(HoldHere, brief_s);
  AwaitHeldUp(jobs);
  const bool attached = Attach(jobs);
  if (!attached) std::printf("skipped: no process may be traced here\n");
  if (attached && brief_s > 0) WaitAll(jobs, true);
  if (attached && brief_s == 0) usleep(200000);
  ForEach(jobs, [&](const Running& job) {
    doom::Shared().released = 1;
    if (doom::Shared().held_ns != 0) {
      EXPECT_EQ(ptrace(PTRACE_DETACH, job.doomed(), nullptr, nullptr), 0);
    }
    if (!attached) {
      for (const pid_t pid : job.pids) static_cast<void>(ranks::Wait(pid));
    } else if (brief_s > 0) {
      EXPECT_EQ(ranks::Wait(job.doomed()).code, 0);
    }
  });
  if (attached && brief_s == 0) WaitAll(jobs);
  return !attached || !AnyWasEarly(jobs);
}

// Runs the jobs until no time-out was early.
void RunBriefly(bool (*run)(double brief_s)) {
  double brief_s = kBriefS;
  while (!run(brief_s) && check::Failures() == 0 && brief_s < kMostBriefS) brief_s *= 2;
  EXPECT_TRUE(brief_s < kMostBriefS);
}

// Stops once in the next wait of this rank.
void StopInTheNextWait() {
  collops::InterruptCheckSlot().store([] {
    collops::InterruptCheckSlot().store(nullptr);
    doom::Shared().at_ns = doom::NowNs();
    raise(SIGSTOP);
    return false;
  });
}

// Rank 1 stops in `body`, and goes on 200 ms later.
void StopOnce(const std::function<void(int rank, const collops::JobIdentity& job)>& body) {
  const collops::JobIdentity job = ranks::FreshJob();
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  doom::Reset();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kSize; ++rank) {
    pids.push_back(ranks::Start([&, rank] { body(rank, job); }));
  }
  EXPECT_TRUE(Await([&] { return StateOf(pids[1]) == 'T'; }));
  usleep(200000);
  doom::Shared().released = 1;
  EXPECT_EQ(kill(pids[1], SIGCONT), 0);
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
  unsetenv("COLLOPS_JOB_ID");
}

}  // namespace

TEST(TheResultIsRightAfterARankWasStoppedInTheMiddle) {
  RunStopped(0);
}
TEST(TheTimeOutSaysThatARankIsStopped) {
  RunBriefly(RunStopped);
}
TEST(TheResultIsRightAfterARankWasHeldInADebugger) {
  RunTraced(0);
}
TEST(TheTimeOutSaysThatARankInADebuggerIsStopped) {
  RunBriefly(RunTraced);
}
TEST(TheResultIsRightIfARankIsLateBySeconds) {
  WaitAll(StartAll(BeLateHere, 0));
}

TEST(ARankMayBeStoppedInFirstContact) {
  StopOnce([](int rank, const collops::JobIdentity& job) {
    if (rank == 1) StopInTheNextWait();
    if (rank == 2) EXPECT_TRUE(Await([] { return doom::Shared().released == 1; }));
    EXPECT_EQ(ranks::Make(job, rank, kSize)->Barrier().message(), "");
  });
}

TEST(ARankMayBeStoppedInASplit) {
  StopOnce([](int rank, const collops::JobIdentity& job) {
    const auto comm = ranks::Make(job, rank, kSize);
    EXPECT_EQ(comm->Barrier().message(), "");
    if (rank == 1) StopInTheNextWait();
    if (rank == 2) EXPECT_TRUE(Await([] { return doom::Shared().released == 1; }));
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(comm->Split(0, 0, &part).message(), "");
    EXPECT_EQ(part->Barrier().message(), "");
  });
}
