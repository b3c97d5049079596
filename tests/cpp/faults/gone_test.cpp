// A rank whose process ends in the middle: in every phase, in every way, in groups of 2 to 7 ranks.
// Each of the others gets ERROR_PEER_LOST within a second, or at its next call, with the rank, its
// pid and the call; then they shrink the group, and call again. COLLOPS_ALL_FAULTS=1 runs every
// size of every phase and fault.
#include <cstdlib>

#include "collops/core/process/interrupt.h"
#include "control/own_cgroup.h"
#include "faults/doom.h"
#include "faults/ways.h"
#include "sanitized.h"

namespace {

using collops::Communicator;
using collops::Status;
using doom::Fault;

constexpr double kLimitS = 1.0;
// A busy machine may take longer once, not in every attempt.
constexpr int kAttempts = 3;

struct Plan {
  int size;
  int victim;
  Fault fault;
  bool has_child;     // a forked child of the victim lives on
  bool reaped_first;  // else it is a zombie as long as the others live
};

// The fault of this process, for handlers and hooks.
Fault& Doomed() {
  static Fault fault = Fault::kKilled;
  return fault;
}
void DieNow() {
  doom::Die(Doomed());
}
// A wait asks this before it sleeps.
void DieInTheNextWait() {
  collops::InterruptCheckSlot().store([] {
    DieNow();
    return false;
  });
}

// What a rank does once all have met; `doomed`: it is to end meanwhile. A status of the last call.
struct Part {
  std::string name;
  std::string op;
  std::function<Status(Communicator&, bool doomed)> run;
};

// The doomed rank ends in the middle of its x, or of its output.
Status CallDoomed(const ways::Way& way, bool in_output, Communicator& comm, bool doomed) {
  const int64_t x_bytes = way.x_elements(comm.size()) * 4;
  const int64_t output_bytes = way.output_elements(comm.size()) * 4;
  doom::Memory x(x_bytes, doomed && !in_output ? DieNow : nullptr);
  doom::Memory output(output_bytes, doomed && in_output ? DieNow : nullptr);
  way.Fill(comm.rank(), comm.size(), x.data());
  const std::vector<int32_t> before(x.data(), x.data() + x_bytes / 4);
  x.Arm();
  output.Arm();
  const Status status = way.Call(comm, x.data(), output.data());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), x.data()));
  return status;
}

// Others are late, so that the doomed rank waits: ranks 0 and 1, of which one is not doomed.
void ComeLateUnless(bool early) {
  for (int i = 0; !early && i < 1000 && doom::Shared().at_ns == 0; ++i) usleep(1000);
}

Status SplitDoomed(Communicator& comm, bool doomed) {
  if (doomed) DieInTheNextWait();
  ComeLateUnless(doomed || comm.rank() > 1);
  std::shared_ptr<Communicator> part;
  return comm.Split(0, 0, &part);
}

Status MeetInAPart(Communicator& comm, bool doomed) {
  std::shared_ptr<Communicator> part;
  COLLOPS_RETURN_IF_ERROR(comm.Split(0, 0, &part));
  if (doomed) DieInTheNextWait();
  ComeLateUnless(doomed || comm.rank() > 1);
  return part->Barrier();
}

// While it closes, and while the others wait for it.
Status CloseDoomed(Communicator& comm, bool doomed) {
  if (!doomed) return comm.Barrier();
  usleep(20000);
  std::thread killer([] { DieNow(); });
  comm.Close("it is through");
  killer.join();
  return collops::Ok();
}

std::vector<Part> Parts() {
  std::vector<Part> parts;
  for (const ways::Way& way : ways::All()) {
    for (const bool in_output : {false, true}) {
      if (in_output && std::string(way.name) == "fused") continue;  // it has written none
      // Messages are named by what the rank waits for: Send or Recv.
      const bool message = std::string(way.name).find("message") != std::string::npos;
      parts.push_back({std::string(way.name) + (in_output ? ", its output" : ", its x"),
                       message ? "" : way.op, [&way, in_output](Communicator& comm, bool doomed) {
                         return CallDoomed(way, in_output, comm, doomed);
                       }});
    }
  }
  parts.push_back({"Split", "split", SplitDoomed});
  parts.push_back({"first contact of a part", "", MeetInAPart});
  parts.push_back({"close", "barrier", CloseDoomed});
  return parts;
}

void LeaveAChild() {
  const pid_t child = fork();
  if (child != 0) {
    doom::Shared().child = child;
    return;
  }
  for (;;) pause();
}

// Notes how long this rank took to hear of it since it happened, or since its call began.
void NoteTime(int64_t begun_ns) {
  const int64_t since_ns = std::max(begun_ns, doom::Shared().at_ns.load());
  const int64_t took_ns = doom::NowNs() - since_ns;
  std::atomic<int64_t>& most_ns = doom::Shared().most_ns;
  int64_t most = most_ns;
  while (took_ns > most && !most_ns.compare_exchange_weak(most, took_ns)) continue;
}

void ExpectLoss(const Status& status, const Plan& plan, const std::string& op) {
  EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
  // In a communicator that has ended, the message names the call that ended it.
  if (status.message().find("make a new one") == std::string::npos) {
    EXPECT_CONTAINS(status.message(), op);
  }
  EXPECT_CONTAINS(status.message(), "rank " + std::to_string(plan.victim) + " (pid " +
                                        std::to_string(doom::Shared().victim) + ")");
}

// The ranks that live on are a group.
void GoOn(const Plan& plan, Communicator& comm) {
  std::shared_ptr<Communicator> left;
  ASSERT_EQ(comm.Shrink({}, 0, &left).message(), "");
  EXPECT_EQ(left->size(), plan.size - 1);
  const ways::Way& way = ways::All()[0];
  std::vector<int32_t> x(static_cast<size_t>(way.x_elements(left->size())));
  std::vector<int32_t> output(static_cast<size_t>(way.output_elements(left->size())), -7);
  way.Fill(left->rank(), left->size(), x.data());
  EXPECT_EQ(way.Call(*left, x.data(), output.data()).message(), "");
  EXPECT_EQ(way.Wrong(left->rank(), left->size(), output.data()), 0);
}

// A rank that lives on: its calls, until one fails.
void Survive(const Plan& plan, const Part& part, Communicator& comm) {
  Status status;
  int64_t begun_ns = 0;
  for (int call = 0; call < 3 && status.ok(); ++call) {
    begun_ns = doom::NowNs();
    status = part.run(comm, false);
  }
  if (status.ok()) {  // its messages needed none of the ranks that have heard
    begun_ns = doom::NowNs();
    status = comm.Barrier();
  }
  NoteTime(begun_ns);
  ExpectLoss(status, plan, part.op.empty() ? "" : part.op + ": call ");
  EXPECT_EQ(comm.Barrier().code(), collops::ERROR_PEER_LOST);
  // A rank that closes before another has heard of the loss would be the one that it hears of.
  ++doom::Shared().heard;
  const int64_t end_ns = doom::NowNs() + static_cast<int64_t>(check::Patience(10) * 1e9);
  while (doom::Shared().heard < plan.size - 1 && doom::NowNs() < end_ns) usleep(200);
  GoOn(plan, comm);
}

// Runs `body` on every rank. Returns the longest time until one of the others heard of the end.
double RunJob(const Plan& plan, const std::function<void(int)>& body) {
  doom::Reset();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < plan.size; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      Doomed() = plan.fault;
      if (rank == plan.victim) doom::Shared().victim = getpid();
      body(rank);
    }));
  }
  const pid_t doomed = pids[static_cast<size_t>(plan.victim)];
  ranks::Ended end;
  if (plan.reaped_first) end = ranks::Wait(doomed);
  for (const pid_t pid : pids) {
    if (pid != doomed) EXPECT_EQ(ranks::Wait(pid).code, 0);
  }
  if (!plan.reaped_first) end = ranks::Wait(doomed);
  // A sanitizer reports a lack of memory, and exits.
  if (!kSanitized) EXPECT_EQ(end.exited, plan.fault == Fault::kExit);
  const pid_t child = doom::Shared().child;
  EXPECT_EQ(child > 0, plan.has_child);
  if (child > 0) EXPECT_EQ(kill(child, SIGKILL), 0);
  return static_cast<double>(doom::Shared().most_ns) / 1e9;
}

double RunPart(const Plan& plan, const Part& part) {
  const collops::JobIdentity job = ranks::FreshJob();
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  const double took_s = RunJob(plan, [&](int rank) {
    const auto comm = ranks::Make(job, rank, plan.size);
    EXPECT_EQ(comm->Barrier().message(), "");
    if (rank != plan.victim) return Survive(plan, part, *comm);
    if (plan.has_child) LeaveAChild();
    static_cast<void>(part.run(*comm, true));
    EXPECT_EQ(std::string("the doomed rank"), "has ended");
  });
  unsetenv("COLLOPS_JOB_ID");
  return took_s;
}

// One rank never comes, so the others are in first contact when the victim ends.
double RunFirstContact(const Plan& plan) {
  const collops::JobIdentity job = ranks::FreshJob();
  const int absent = plan.victim == plan.size - 1 ? plan.size - 2 : plan.size - 1;
  const ranks::Event listens, come;
  const auto others = static_cast<size_t>(plan.size) - 2;
  return RunJob(plan, [&](int rank) {
    if (rank == absent) return;
    if (rank > 0) listens.Wait();
    const auto comm = ranks::Make(job, rank, plan.size);
    if (rank == 0) listens.Set(others);
    if (rank == plan.victim) {
      if (plan.has_child) LeaveAChild();
      come.Wait(others);
      DieInTheNextWait();
      static_cast<void>(comm->Connect());
      EXPECT_EQ(std::string("the doomed rank"), "has ended");
      return;
    }
    come.Set();
    const int64_t begun_ns = doom::NowNs();
    const Status status = comm->Connect();
    NoteTime(begun_ns);
    ExpectLoss(status, plan, "first contact");
  });
}

// Runs a plan again if the time was too long, and prints the longest of the good ones.
template <typename Run>
void InTime(const std::string& what, double* most_s, Run&& run) {
  double took_s = 2 * kLimitS;
  for (int attempt = 0; attempt < kAttempts && took_s > kLimitS; ++attempt) took_s = run();
  if (took_s > kLimitS) {
    check::Fail(__FILE__, __LINE__, what + ": heard after " + std::to_string(took_s) + " s");
  }
  *most_s = std::max(*most_s, took_s);
}

// Sizes, victims and the circumstances change from run to run.
Plan NextPlan(Fault fault, int size) {
  static int number = 0;
  const int n = number++;
  return {size, n % size, fault, n % 2 == 0, n % 4 < 2};
}

bool All() {
  return std::getenv("COLLOPS_ALL_FAULTS") != nullptr;
}

std::vector<int> Sizes(int least) {
  static int number = 0;
  std::vector<int> sizes;
  for (const int size : {2, 3, 4, 5, 7}) {
    if (size >= least) sizes.push_back(size);
  }
  if (All()) return sizes;
  return {sizes[static_cast<size_t>(number++) % sizes.size()]};
}

void RunAll(Fault fault) {
  double most_s = 0;
  int runs = 0;
  const std::vector<Part> parts = Parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    // A sixth of the phases for all faults but one.
    if (!All() && fault != Fault::kKilled && (i + static_cast<size_t>(fault)) % 6 != 0) continue;
    for (const int size : Sizes(2)) {
      const Plan plan = NextPlan(fault, size);
      const int before = check::Failures();
      InTime(part.name, &most_s, [&] { return RunPart(plan, part); });
      if (check::Failures() != before) {
        std::printf("  in %s, rank %d of %d\n", part.name.c_str(), plan.victim, size);
      }
      ++runs;
    }
  }
  for (const int size : Sizes(3)) {
    InTime("first contact", &most_s, [&] { return RunFirstContact(NextPlan(fault, size)); });
    ++runs;
  }
  std::printf("%s: %d runs, heard within %.3f s\n", doom::Name(fault), runs, most_s);
}

}  // namespace

TEST(AKilledRankIsReportedInEveryPhase) {
  RunAll(Fault::kKilled);
}
TEST(ASegmentationFaultIsReportedInEveryPhase) {
  RunAll(Fault::kSegfault);
}
TEST(AnExitIsReportedInEveryPhase) {
  RunAll(Fault::kExit);
}
TEST(AnAbortIsReportedInEveryPhase) {
  RunAll(Fault::kAbort);
}
TEST(AnExceptionThatNobodyCatchesIsReportedInEveryPhase) {
  RunAll(Fault::kBadAlloc);
}
TEST(ARankThatTheKernelEndsForItsMemoryIsReportedInEveryPhase) {
  const OwnCgroup cgroup(int64_t{32} << 20);
  if (!cgroup.valid()) return;
  doom::CgroupFile() = cgroup.entrance();
  RunAll(Fault::kOutOfMemory);
}
