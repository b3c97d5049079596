#include "collops/comm/placement/job.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "placement/launchers.h"

namespace {

using collops::DetectLauncher;
using collops::FindJobIdentity;
using collops::JobIdentity;
using collops::Launcher;
using collops::NameForOthers;
using collops::SetProcessFamily;
using collops::Status;
using launchers::SetVariables;
using launchers::Variables;
using launchers::With;

std::string IdWith(const Variables& variables) {
  SetVariables(variables);
  JobIdentity identity;
  const Status status = FindJobIdentity(&identity);
  return status.ok() ? identity.id : "error";
}

std::string SourceWith(const Variables& variables) {
  SetVariables(variables);
  JobIdentity identity;
  const Status status = FindJobIdentity(&identity);
  return status.ok() ? identity.source : "error";
}

const Variables kTorchrun = {{"MASTER_ADDR", "host"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "run"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Variables kSlurm = {{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}};

void ExpectLauncher(const Variables& variables, const char* name, int rank, int rank_size) {
  SetVariables(variables);
  const Launcher launcher = DetectLauncher();
  EXPECT_EQ(launcher.name, std::string(name));
  EXPECT_EQ(launcher.rank, rank);
  EXPECT_EQ(launcher.rank_size, rank_size);
}

}  // namespace

TEST(EachLauncherSaysRankAndSize) {
  ExpectLauncher({}, "", -1, -1);
  ExpectLauncher({{"COLLOPS_RANK", "1"}, {"COLLOPS_RANK_SIZE", "4"}}, "COLLOPS_RANK", 1, 4);
  ExpectLauncher(With(With(kTorchrun, "RANK", "2"), "WORLD_SIZE", "8"), "torchrun", 2, 8);
  ExpectLauncher({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}}, "Open MPI", 0, 3);
  ExpectLauncher({{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}}, "MPICH or Intel MPI", 5, 6);
  ExpectLauncher(With(With(kSlurm, "SLURM_PROCID", "7"), "SLURM_NTASKS", "9"), "Slurm", 7, 9);
}

TEST(TheInnermostLauncherWins) {
  Variables all = With(With(kSlurm, "SLURM_PROCID", "5"), "SLURM_NTASKS", "50");
  ExpectLauncher(all, "Slurm", 5, 50);
  all = With(With(all, "PMI_RANK", "4"), "PMI_SIZE", "40");
  ExpectLauncher(all, "MPICH or Intel MPI", 4, 40);
  all = With(With(all, "OMPI_COMM_WORLD_RANK", "3"), "OMPI_COMM_WORLD_SIZE", "30");
  ExpectLauncher(all, "Open MPI", 3, 30);
  all.insert(kTorchrun.begin(), kTorchrun.end());
  all = With(With(all, "RANK", "2"), "WORLD_SIZE", "20");
  ExpectLauncher(all, "torchrun", 2, 20);
  all = With(With(all, "COLLOPS_RANK", "1"), "COLLOPS_RANK_SIZE", "10");
  ExpectLauncher(all, "COLLOPS_RANK", 1, 10);
}

TEST(VariablesOfNoLauncherAreIgnored) {
  ExpectLauncher({{"RANK", "2"}, {"WORLD_SIZE", "8"}}, "", -1, -1);
  // A batch script has a job and SLURM_PROCID, but is no rank.
  const Variables batch = {{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}};
  ExpectLauncher(batch, "", -1, -1);
  ExpectLauncher(With(batch, "SLURM_STEP_ID", "4294967291"), "", -1, -1);
}

TEST(ALauncherVariableThatIsNoNumberIsIgnored) {
  for (const char* text : {"x", "1x", " 1", "-1", "0x1", "1.0", "99999999999", "2147483648"}) {
    ExpectLauncher({{"PMI_RANK", text}, {"PMI_SIZE", "4"}}, "MPICH or Intel MPI", -1, 4);
    ExpectLauncher({{"PMI_RANK", "3"}, {"PMI_SIZE", text}}, "MPICH or Intel MPI", 3, -1);
  }
  ExpectLauncher({{"PMI_RANK", "3"}}, "MPICH or Intel MPI", 3, -1);
}

TEST(TheFirstRuleThatAppliesNamesTheJob) {
  SetProcessFamily("family");
  Variables all;
  EXPECT_EQ(SourceWith(all), std::string("multiprocessing"));
  all.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_CONTAINS(SourceWith(all), "Slurm");
  all["PMIX_NAMESPACE"] = "prterun-host-123@1";
  EXPECT_CONTAINS(SourceWith(all), "Open MPI");
  all.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_CONTAINS(SourceWith(all), "torchrun");
  all["COLLOPS_JOB_ID"] = "mine";
  EXPECT_EQ(SourceWith(all), std::string("COLLOPS_JOB_ID"));
  SetProcessFamily("");
}

TEST(EveryPartOfTheIdentityCounts) {
  for (const auto& [name, value] : kTorchrun) {
    EXPECT_TRUE(IdWith(With(kTorchrun, name, value + "1")) != IdWith(kTorchrun));
  }
  for (const auto& [name, value] : kSlurm) {
    EXPECT_TRUE(IdWith(With(kSlurm, name, value + "1")) != IdWith(kSlurm));
  }
  EXPECT_TRUE(IdWith({{"PMIX_NAMESPACE", "a"}}) != IdWith({{"PMIX_NAMESPACE", "b"}}));
  EXPECT_TRUE(IdWith({{"COLLOPS_JOB_ID", "a"}}) != IdWith({{"COLLOPS_JOB_ID", "b"}}));
  SetProcessFamily("a");
  const std::string family = IdWith({});
  SetProcessFamily("b");
  EXPECT_TRUE(IdWith({}) != family);
  SetProcessFamily("");
  // The same text from two sources is not the same job.
  EXPECT_TRUE(IdWith({{"PMIX_NAMESPACE", "a"}}) != IdWith({{"COLLOPS_JOB_ID", "a"}}));
}

// Each host's torchrun counts the failures of its own ranks.
TEST(TheRestartIsNoPartOfTheIdentityOfSeveralHosts) {
  Variables job = With(With(kTorchrun, "WORLD_SIZE", "4"), "LOCAL_WORLD_SIZE", "2");
  EXPECT_EQ(IdWith(With(job, "TORCHELASTIC_RESTART_COUNT", "1")), IdWith(job));
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}) {
    EXPECT_TRUE(IdWith(With(job, name, "7")) != IdWith(job));
  }
  job["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_TRUE(IdWith(With(job, "TORCHELASTIC_RESTART_COUNT", "1")) != IdWith(job));
}

TEST(TheRankIsNoPartOfTheIdentity) {
  EXPECT_EQ(IdWith(With(kTorchrun, "RANK", "1")), IdWith(With(kTorchrun, "RANK", "0")));
  EXPECT_EQ(IdWith(With(kSlurm, "SLURM_PROCID", "1")), IdWith(With(kSlurm, "SLURM_PROCID", "0")));
}

TEST(AProcessIsInTheJobWhoseNameItIsGiven) {
  for (const Variables& variables : {kTorchrun, kSlurm, Variables{{"PMIX_NAMESPACE", "run@1"}},
                                     Variables{{"COLLOPS_JOB_ID", "mine"}}}) {
    SetVariables(variables);
    JobIdentity job;
    EXPECT_EQ(FindJobIdentity(&job).message(), "");
    EXPECT_EQ(IdWith({{"COLLOPS_JOB_ID", NameForOthers(job)}}), job.id);
  }
  EXPECT_EQ(IdWith({{"COLLOPS_JOB_ID", "threads/1"}}), "job/threads/1");
}

TEST(WithoutARuleTheErrorSaysWhatToSet) {
  SetProcessFamily("");
  for (const Variables& variables : {Variables{}, Variables{{"SLURM_JOB_ID", "12"}}}) {
    SetVariables(variables);
    JobIdentity identity;
    const Status status = FindJobIdentity(&identity);
    EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
    EXPECT_CONTAINS(status.message(), "set COLLOPS_JOB_ID");
  }
}

// The tests below need processes that had other environments at their start. This program starts
// itself again, one process per letter of JOB_TEST_GENERATIONS, each the child of the previous one.
// Every process prints its letter and pid, the last one also its job's identity.
namespace {

// L: a launcher, without PMI_RANK. R: a rank, with PMI_RANK. H: a rank that hides its environment.
// O: a rank that ends at once, so that its child is an orphan. P: a rank starter inside a rank.
void StartGeneration(const std::string& generations) {
  std::vector<std::string> environment = {"JOB_TEST_GENERATIONS=" + generations};
  if (generations[0] != 'L') environment.push_back("PMI_RANK=0");
  std::vector<char*> pointers;
  for (std::string& variable : environment) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  std::string program = "/proc/self/exe";
  std::string test = "RunsAsGeneration";
  char* arguments[] = {program.data(), test.data(), nullptr};
  execve(program.c_str(), arguments, pointers.data());
  _exit(127);
}

void WaitUntilOrphan(pid_t parent) {
  for (int i = 0; i < check::Patience(5000) && getppid() == parent; ++i) usleep(1000);
}

void PrintIdentity() {
  JobIdentity identity;
  const Status status = FindJobIdentity(&identity);
  std::printf("parent %d\n", static_cast<int>(getppid()));
  std::printf("identity %s\n", status.ok() ? identity.id.c_str() : "error");
  std::printf("message %s\n", status.message().c_str());
}

void RunAsGeneration(const std::string& generations) {
  // The second name looks like fields of /proc/PID/stat, to mislead a wrong parser.
  prctl(PR_SET_NAME, generations[0] == 'P' ? "hydra_pmi_proxy" : "a) R 1 (b 2");
  if (generations[0] == 'H') prctl(PR_SET_DUMPABLE, 0);
  std::printf("%c %d\n", generations[0], static_cast<int>(getpid()));
  if (generations.size() == 1) return PrintIdentity();
  std::fflush(stdout);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    if (generations[0] == 'O') WaitUntilOrphan(self);
    StartGeneration(generations.substr(1));
  }
  if (generations[0] != 'O') waitpid(child, nullptr, 0);
}

// What the generations print, by the word before it; for a letter, the pid of its last process.
std::map<std::string, std::string> RunGenerations(const std::string& generations, bool as_nobody) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    if (as_nobody && setuid(65534) != 0) _exit(126);
    StartGeneration(generations);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  std::map<std::string, std::string> printed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) printed[line.substr(0, space)] = line.substr(space + 1);
  }
  return printed;
}

// "PID/" must follow the rule's name: the number after it is the start time.
void ExpectAncestor(const std::map<std::string, std::string>& printed, const std::string& pid) {
  const auto identity = printed.find("identity");
  ASSERT_TRUE(identity != printed.end());
  EXPECT_CONTAINS(identity->second, "/" + pid + "/");
}

uint64_t StartTicks(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return std::stoull(field);
}

}  // namespace

// Does something only in the processes that the tests below start.
TEST(RunsAsGeneration) {
  const char* generations = std::getenv("JOB_TEST_GENERATIONS");
  if (generations != nullptr) RunAsGeneration(generations);
}

TEST(TheAncestorWithoutPmiRankNamesTheJob) {
  SetVariables({});
  const std::string self = std::to_string(getpid());
  const auto printed = RunGenerations("R", false);
  ExpectAncestor(printed, self);
  EXPECT_CONTAINS(printed.at("identity"), "/" + std::to_string(StartTicks(getpid())));
  ExpectAncestor(RunGenerations("RRR", false), self);
}

TEST(TwoLaunchersAreTwoJobs) {
  SetVariables({});
  const auto first = RunGenerations("LRR", false);
  const auto second = RunGenerations("LR", false);
  ExpectAncestor(first, first.at("L"));
  ExpectAncestor(second, second.at("L"));
  EXPECT_TRUE(first.at("identity") != second.at("identity"));
}

TEST(TwoLaunchersInsideARankAreTwoJobs) {
  SetVariables({});
  for (const char* generations : {"LRPR", "LRPRR", "RPRPR"}) {
    const auto printed = RunGenerations(generations, false);
    ASSERT_TRUE(printed.count("P") == 1);
    ExpectAncestor(printed, printed.at("P"));
  }
}

TEST(AnUnreadableAncestorCountsAsTheLauncher) {
  SetVariables({});
  const bool root = geteuid() == 0;  // root may read every environment
  const auto printed = RunGenerations("LHR", root);
  ASSERT_TRUE(printed.count("H") == 1);
  ExpectAncestor(printed, printed.at("H"));
}

TEST(AnOrphanedRankIsToldWhatToSet) {
  SetVariables({});
  const auto printed = RunGenerations("OR", false);
  ASSERT_TRUE(printed.count("identity") == 1);
  if (printed.at("parent") == "1") {
    EXPECT_EQ(printed.at("identity"), std::string("error"));
    EXPECT_CONTAINS(printed.at("message"), "set COLLOPS_JOB_ID");
  } else {
    // A process below init adopts orphans here: it is common to all ranks, as a launcher is.
    ExpectAncestor(printed, printed.at("parent"));
  }
}
