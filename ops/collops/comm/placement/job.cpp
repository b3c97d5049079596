#include "collops/comm/placement/job.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "collops/core/env.h"
#include "collops/core/process/per_process.h"

namespace collops {
namespace {

std::atomic<int> grown_to{0};

// Identifies a process since boot: a pid may be used again, but with another start time.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;
};

std::string ReadProcFile(pid_t pid, const char* name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool HasVariable(const std::string& environment, const std::string& variable) {
  const std::string prefix = variable + "=";
  for (size_t begin = 0; begin < environment.size();) {
    if (environment.compare(begin, prefix.size(), prefix) == 0) return true;
    const size_t end = environment.find('\0', begin);
    if (end == std::string::npos) return false;
    begin = end + 1;
  }
  return false;
}

struct ProcessStat {
  std::string name;
  pid_t parent = 0;
  uint64_t start_ticks = 0;
};

// Reads /proc/PID/stat. Its second field, the name in parentheses, may contain spaces and
// parentheses, so the rest is counted from the last parenthesis.
bool ReadStat(pid_t pid, ProcessStat* stat) {
  const std::string text = ReadProcFile(pid, "stat");
  const size_t name_begin = text.find('(');
  const size_t name_end = text.rfind(')');
  if (name_begin >= name_end || name_end == std::string::npos) return false;
  stat->name = text.substr(name_begin + 1, name_end - name_begin - 1);
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  fields >> skipped >> stat->parent;  // fields 3 and 4
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat->start_ticks;
  return !fields.fail();
}

// The nearest ancestor of this process that has one of `names`, or whose environment at its start
// lacked `variable`, or cannot be read because it belongs to another user. A name is the kernel's,
// at most 15 characters. False if there is none below init (pid 1 or the end of the pid namespace),
// which all processes share.
bool NearestAncestor(const std::vector<std::string>& names, const char* variable,
                     ProcessId* ancestor) {
  ProcessStat stat;
  if (!ReadStat(getpid(), &stat)) return false;
  while (stat.parent > 1) {
    const pid_t pid = stat.parent;
    if (!ReadStat(pid, &stat)) return false;
    if (std::find(names.begin(), names.end(), stat.name) != names.end() ||
        !HasVariable(ReadProcFile(pid, "environ"), variable)) {
      *ancestor = {pid, stat.start_ticks};
      return true;
    }
  }
  return false;
}

constexpr const char* kJobIdRule =
    " to a text that is the same in all ranks of the job and differs from other jobs on this host";

// A whole decimal number in [0, limit); -1 for anything else.
int64_t ParseNumber(const std::string& text, int64_t limit) {
  int64_t number = -1;
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return -1;
  return number >= 0 && number < limit ? number : -1;
}

constexpr int64_t kRankLimit = int64_t{1} << 31;

}  // namespace

int RankNumber(const char* variable) {
  return static_cast<int>(ParseNumber(GetVariable(variable), kRankLimit));
}

namespace {

bool IsSet(const char* variable) {
  return !GetVariable(variable).empty();
}

bool HasRankTable() {
  return IsSet("RANK_TABLE_FILE");
}

bool InTorchrun() {
  return IsSet("TORCHELASTIC_RUN_ID");
}

// Batch scripts and salloc's shell also have SLURM_PROCID and SLURM_NTASKS, but are no ranks: they
// have no step, or one of the four step numbers that Slurm reserves at the end of 32 bits.
bool InSlurmStep() {
  constexpr int64_t kFirstReserved = 0xfffffff0;
  return IsSet("SLURM_JOB_ID") && ParseNumber(GetVariable("SLURM_STEP_ID"), kFirstReserved) >= 0;
}

bool Always() {
  return true;
}

struct RankVariables {
  const char* launcher;
  const char* rank;
  const char* rank_size;
  bool (*applies)();
  const char* local_size;  // ranks on this host; null: no variable says it
};

// `collops run`, run_ranks or a user sets them: nothing says which.
constexpr const char* kOwnVariables = "COLLOPS_RANK";

// In the order of FindJobIdentity(), but PMI before Slurm: where Intel MPI or MPICH start their
// proxies with srun, SLURM_PROCID numbers the proxies and PMI_RANK the ranks.
constexpr RankVariables kRankVariables[] = {
    {kOwnVariables, "COLLOPS_RANK", "COLLOPS_RANK_SIZE", Always, "LOCAL_WORLD_SIZE"},
    {"the rank table's environment", "RANK_ID", "RANK_SIZE", HasRankTable, nullptr},
    {"torchrun", "RANK", "WORLD_SIZE", InTorchrun, "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", Always,
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", Always, "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", InSlurmStep, nullptr},
};

// `collops run` and run_ranks set LOCAL_WORLD_SIZE, too. Who sets COLLOPS_RANK by hand may do so
// inside of torchrun.
bool IsOfAnother(const RankVariables& row, int rank_size) {
  return row.launcher == kOwnVariables && RankNumber("WORLD_SIZE") != rank_size;
}

Spread SpreadOf(const Launcher& launcher) {
  if (launcher.local_size > 0 && launcher.rank_size > 0) {
    return launcher.local_size < launcher.rank_size ? Spread::kHosts : Spread::kOneHost;
  }
  if (launcher.name != "Slurm") return Spread::kUnknown;
  const char* const of_step = "SLURM_STEP_NUM_NODES";
  const int nodes = RankNumber(IsSet(of_step) ? of_step : "SLURM_NNODES");
  if (nodes < 1) return Spread::kUnknown;
  return nodes > 1 ? Spread::kHosts : Spread::kOneHost;
}

// The process family (SetProcessFamily). A child of fork() belongs to it, too, so there is no lock
// that a thread of the parent could hold: all names stay in a list, one of which is current.
struct FamilyName {
  std::string id;
  FamilyName* before;
};
std::atomic<FamilyName*> family_names{nullptr};
std::atomic<const FamilyName*> family{nullptr};

const FamilyName* KeepFamilyName(const std::string& id) {
  FamilyName* newest = family_names.load(std::memory_order_acquire);
  for (const FamilyName* name = newest; name != nullptr; name = name->before) {
    if (name->id == id) return name;
  }
  auto* const added = new FamilyName{id, newest};
  while (!family_names.compare_exchange_weak(added->before, added)) {
  }
  return added;
}

// Differs between this process and a later one with the same pid.
struct Token {
  const unsigned number = std::random_device()();
};
PerProcess<Token> token;

// Only the last part may contain a slash, so different lists never give the same text. The restarts
// of several hosts do not count: each host's torchrun counts those that its own ranks have caused.
// It has ended the ranks of the last start before it meets the others for the next one.
std::string TorchrunId() {
  const bool hosts = RankNumber("LOCAL_WORLD_SIZE") < RankNumber("WORLD_SIZE") &&
                     RankNumber("LOCAL_WORLD_SIZE") > 0;
  return Concat("torchrun/", GetVariable("MASTER_ADDR"), "/", GetVariable("MASTER_PORT"), "/",
                hosts ? "hosts" : GetVariable("TORCHELASTIC_RESTART_COUNT"), "/",
                GetVariable("TORCHELASTIC_RUN_ID"));
}

// The processes that start the ranks of MPICH and Intel MPI. Inside a rank of another job they have
// PMI_RANK themselves, so they are found by name.
const std::vector<std::string>& RankStarters() {
  static const auto* const names =
      new std::vector<std::string>{"hydra_pmi_proxy", "pmi_proxy", "mpiexec.gforker"};
  return *names;
}

Status FromAncestor(JobIdentity* identity) {
  ProcessId ancestor;
  // The process family cannot be used here: under MPI every rank has its own.
  COLLOPS_CHECK_ARG(
      NearestAncestor(RankStarters(), "PMI_RANK", &ancestor), ERROR_INVALID_PARAM,
      "MPICH and Intel MPI do not name the job, and the process that started this rank is "
      "gone or is outside this container: set COLLOPS_JOB_ID",
      kJobIdRule);
  *identity = {Concat("ancestor/", ancestor.pid, "/", ancestor.start_ticks),
               Concat("MPICH or Intel MPI (ancestor process ", ancestor.pid, ")"), true};
  return Ok();
}

// Before a job's name that COLLOPS_JOB_ID gives.
constexpr const char* kNamed = "job/";
constexpr const char* kOfTable = "rank-table/";

// Whether COLLOPS_JOB_ID is the name that others have of their launcher or table. Nobody gives such
// a name to another job by chance.
bool IsWholeName(const std::string& name) {
  constexpr const char* kPrefixes[] = {"torchrun/", "pmix/",     "slurm/",
                                       kOfTable,    "ancestor/", "family/"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](const char* prefix) { return name.rfind(prefix, 0) == 0; });
}

// Sources of a job's identity that no other setting can override.
constexpr const char* kJobIdSource = "COLLOPS_JOB_ID";
constexpr const char* kAgreedSource = "init's job_id";
constexpr const char* kThreadsSource = "COMM_MULTI_THREAD";

bool FromFamily(JobIdentity* identity) {
  const FamilyName* const name = family.load(std::memory_order_acquire);
  if (name == nullptr || name->id.empty()) return false;
  *identity = {"family/" + name->id, "multiprocessing", true};
  return true;
}

}  // namespace

Launcher DetectLauncher() {
  for (const RankVariables& row : kRankVariables) {
    if (!IsSet(row.rank) || !row.applies()) continue;
    Launcher launcher;
    launcher.name = row.launcher;
    launcher.rank = RankNumber(row.rank);
    launcher.rank_size = RankNumber(row.rank_size);
    if (row.local_size != nullptr && !IsOfAnother(row, launcher.rank_size)) {
      launcher.local_size = RankNumber(row.local_size);
    }
    launcher.spread = SpreadOf(launcher);
    return launcher;
  }
  return {};
}

Status FindJobIdentity(JobIdentity* identity, const std::string& table_digest) {
  if (IsSet("COLLOPS_JOB_ID")) {
    const std::string name = GetVariable("COLLOPS_JOB_ID");
    *identity = {Concat(IsWholeName(name) ? "" : kNamed, name), kJobIdSource};
    return Ok();
  }
  if (InTorchrun()) {
    *identity = {TorchrunId(), "torchrun (TORCHELASTIC_RUN_ID)"};
    return Ok();
  }
  if (IsSet("PMIX_NAMESPACE")) {
    *identity = {"pmix/" + GetVariable("PMIX_NAMESPACE"), "Open MPI (PMIX_NAMESPACE)"};
    return Ok();
  }
  if (InSlurmStep()) {
    *identity = {Concat("slurm/", GetVariable("SLURM_JOB_ID"), "/", GetVariable("SLURM_STEP_ID")),
                 "Slurm (SLURM_JOB_ID and SLURM_STEP_ID)"};
    return Ok();
  }
  if (!table_digest.empty()) {
    *identity = {kOfTable + table_digest, "the rank table's content"};
    return Ok();
  }
  if (IsSet("PMI_RANK")) return FromAncestor(identity);
  if (FromFamily(identity)) return Ok();
  return Error(
      ERROR_INVALID_PARAM,
      "no launcher names the job of this process: start the ranks with collops run, "
      "torchrun, mpirun or srun (in a notebook or test: collops.testing.run_ranks), or set "
      "COLLOPS_JOB_ID",
      kJobIdRule);
}

Status FindMeetingPlace(bool threads, const std::string& job_id, const std::string& table_digest,
                        JobIdentity* identity) {
  if (!threads && !job_id.empty()) {
    *identity = {"agreed/" + job_id, kAgreedSource};
    return Ok();
  }
  if (!threads) return FindJobIdentity(identity, table_digest);
  *identity = {Concat("threads/", getpid(), "/", token.Get().number,
                      job_id.empty() ? "" : "/agreed/", job_id),
               kThreadsSource};
  return Ok();
}

std::string NameForOthers(const JobIdentity& job) {
  return job.id.rfind(kNamed, 0) == 0 ? job.id.substr(std::string(kNamed).size()) : job.id;
}

bool IsNamedByTable(const std::string& job_id) {
  return job_id.rfind(kOfTable, 0) == 0;
}

std::string DescribeJob(const JobIdentity& job) {
  const bool fixed =
      job.source == kJobIdSource || job.source == kAgreedSource || job.source == kThreadsSource;
  const bool named = job.id.rfind(kNamed, 0) == 0;
  return Concat(named ? "" : "job ", job.id, ", from ", job.source,
                fixed ? "" : "; set COLLOPS_JOB_ID to meet other processes");
}

void NoteRankSize(int rank_size) {
  int before = grown_to.load();
  while (before < rank_size && !grown_to.compare_exchange_weak(before, rank_size)) continue;
}

Status CheckRankSize(int rank_size, const Voice& voice) {
  if (rank_size <= grown_to.load()) return Ok();
  const Launcher launcher = DetectLauncher();
  const bool own = launcher.name == kOwnVariables;
  // The same COLLOPS_JOB_ID may serve several launches; but run_ranks sets one per launch.
  const bool one_launch = !IsSet("COLLOPS_JOB_ID") || own;
  const std::string started =
      own ? Concat("COLLOPS_RANK_SIZE is ", launcher.rank_size)
          : Concat(launcher.name, " has started ", launcher.rank_size, " ranks");
  COLLOPS_CHECK_ARG(launcher.rank_size < 1 || rank_size <= launcher.rank_size || !one_launch,
                    ERROR_INVALID_PARAM, voice.begin, voice.rank_size, " is ", rank_size, ", but ",
                    started, ": pass at most ", launcher.rank_size, ", or start more");
  return Ok();
}

void SetProcessFamily(const std::string& id) {
  family.store(KeepFamilyName(id), std::memory_order_release);
}

}  // namespace collops
