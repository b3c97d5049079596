#include "collops/core/env.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace collops {
namespace {

// Reads the whole text as a number; leaves `value` unchanged if the variable is not set.
template <typename Number>
Status ReadNumber(const std::string& text, const char* what, Number least, Number* value) {
  if (text.empty()) return Ok();
  Number number{};
  const char* end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, number);
  const bool whole = result.ec == std::errc() && result.ptr == end;
  COLLOPS_CHECK_ARG(whole && std::isfinite(static_cast<double>(number)) && number >= least,
                    ERROR_INVALID_PARAM, "must be ", what, ", got \"", text, "\"");
  *value = number;
  return Ok();
}

template <bool Env::* member>
Status ReadSwitch(const std::string& text, Env* env) {
  COLLOPS_CHECK_ARG(text.empty() || text == "0" || text == "1", ERROR_INVALID_PARAM,
                    "must be 0 or 1, got \"", text, "\"");
  if (!text.empty()) env->*member = text == "1";
  return Ok();
}

Status ReadPort(const std::string& text, Env* env) {
  constexpr int kMost = 65535;
  constexpr const char* kWhat = "a port from 1 to 65535";
  int number = env->port;
  COLLOPS_RETURN_IF_ERROR(ReadNumber(text, kWhat, 1, &number));
  COLLOPS_CHECK_ARG(number <= kMost, ERROR_INVALID_PARAM, "must be ", kWhat, ", got \"", number,
                    "\"");
  env->port = number;
  return Ok();
}

Status ReadPortRange(const std::string& text, Env* env) {
  if (text.empty()) return Ok();
  const size_t dash = text.find('-');
  const std::string first = text.substr(0, dash);
  const std::string last = dash == std::string::npos ? "" : text.substr(dash + 1);
  Env low;
  Env high;
  const bool valid = !first.empty() && !last.empty() && ReadPort(first, &low).ok() &&
                     ReadPort(last, &high).ok() && low.port <= high.port;
  COLLOPS_CHECK_ARG(valid, ERROR_INVALID_PARAM,
                    "must be two ports from 1 to 65535, as 30000-30099, got \"", text, "\"");
  env->first_port = low.port;
  env->last_port = high.port;
  return Ok();
}

Status ReadTrace(const std::string& text, Env* env) {
  if (IsTracePath(text)) {
    env->trace_path = text;
    return Ok();
  }
  COLLOPS_CHECK_ARG(text.empty() || text == "0" || text == "1" || text == "2", ERROR_INVALID_PARAM,
                    "must be 0, 1 or 2, or the name of a file that ends in .json, got \"", text,
                    "\"");
  if (!text.empty()) env->trace = text[0] - '0';
  return Ok();
}

// One backend name, or pairs such as hccl=shm. The names are not checked here.
Status ReadBackend(const std::string& text, Env* env) {
  env->backend = text;
  if (text.find('=') == std::string::npos) {
    if (!text.empty()) env->replacements.push_back({"", text});
    return Ok();
  }
  std::istringstream pairs(text);
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const size_t equals = pair.find('=');
    const bool is_pair = equals != std::string::npos && equals > 0 && equals + 1 < pair.size();
    COLLOPS_CHECK_ARG(is_pair, ERROR_INVALID_PARAM, "\"", pair,
                      "\" is not a pair such as hccl=shm");
    env->replacements.push_back({pair.substr(0, equals), pair.substr(equals + 1)});
  }
  return Ok();
}

// The backend reads it.
Status ReadSums(const std::string& text, Env* /*env*/) {
  COLLOPS_CHECK_ARG(text.empty() || text == "rank_order", ERROR_INVALID_PARAM,
                    "must be rank_order, got \"", text, "\"");
  return Ok();
}

// collops.torch reads it; here a value that it does not know is refused, and shown by the doctor.
Status ReadAs(const std::string& text, Env* /*env*/) {
  COLLOPS_CHECK_ARG(text.empty() || text == "gloo", ERROR_INVALID_PARAM, "must be gloo, got \"",
                    text, "\"");
  return Ok();
}

template <std::string Env::* member>
Status ReadText(const std::string& text, Env* env) {
  env->*member = text;
  return Ok();
}

constexpr double kLeastTimeoutS = 1e-3;

// How a variable is read into its members of Env. The error says what is wrong, without the name.
struct Reader {
  const char* name;
  Status (*read)(const std::string& text, Env* env);
  bool is_list = false;  // errors are of one item, and show the whole value
};

const Reader kReaders[] = {
    {"COLLOPS_AS", ReadAs},
    {"COLLOPS_BACKEND", ReadBackend, true},
    {"COLLOPS_JOB_ID", ReadText<&Env::job_id>},
    {"COLLOPS_JOB_KEY", ReadText<&Env::job_key>},
    {"COLLOPS_TIMEOUT_S",
     [](const std::string& text, Env* env) {
       return ReadNumber(text, "a number of seconds of 0.001 or more", kLeastTimeoutS,
                         &env->timeout_s);
     }},
    {"COLLOPS_NUM_THREADS",
     [](const std::string& text, Env* env) {
       return ReadNumber(text, "a whole number of 1 or more", 1, &env->num_threads);
     }},
    {"COLLOPS_PORT", ReadPort},
    {"COLLOPS_PORT_RANGE", ReadPortRange},
    {"COLLOPS_CHECK", ReadSwitch<&Env::check>},
    {"COLLOPS_FUSED", ReadSwitch<&Env::fused>},
    {"COLLOPS_HCCL_BUFFER_MB",
     [](const std::string& text, Env* env) {
       return ReadNumber(text, "a whole number of 1 or more", 1, &env->hccl_buffer_mb);
     }},
    {"COLLOPS_HCCL_MEET", ReadSwitch<&Env::hccl_meet>},
    {"COLLOPS_HCCL_SUMS", ReadSums},
    {"COLLOPS_SGLANG", ReadSwitch<&Env::sglang>},
    {"COLLOPS_VLLM", ReadSwitch<&Env::vllm>},
    {"COLLOPS_TRACE", ReadTrace},
    {"COLLOPS_TUNING",
     [](const std::string& text, Env* env) { return ParseTuning(text, &env->tuning); }, true},
};

Status ReadVariable(const Reader& row, Env* env, std::string* fault) {
  const std::string text = GetVariable(row.name);
  const Status status = row.read(text, env);
  *fault = status.message();
  if (status.ok()) return Ok();
  return row.is_list ? Error(status.code(), row.name, "=", text, ": ", *fault)
                     : Error(status.code(), row.name, " ", *fault);
}

}  // namespace

std::string GetVariable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool IsTracePath(const std::string& text) {
  const std::string ending = kTraceEnding;
  return text.size() > ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

Status Env::Read(Env* env) {
  Env read;
  std::string fault;
  for (const Reader& row : kReaders) COLLOPS_RETURN_IF_ERROR(ReadVariable(row, &read, &fault));
  *env = read;
  return Ok();
}

std::vector<EnvProblem> EnvProblems() {
  std::vector<EnvProblem> problems;
  Env unused;
  for (const Reader& row : kReaders) {
    std::string fault;
    const Status status = ReadVariable(row, &unused, &fault);
    if (!status.ok()) problems.push_back({row.name, std::move(fault), status.message()});
  }
  return problems;
}

std::string Env::ReplaceBackend(const std::string& name) const {
  for (const BackendReplacement& replacement : replacements) {
    if (replacement.from.empty() || replacement.from == name) return replacement.to;
  }
  return name;
}

const std::vector<EnvVariable>& EnvVariables() {
  static const std::vector<EnvVariable>* const variables = new std::vector<EnvVariable>{
      {"COLLOPS_AS", "not set",
       "`gloo`: groups of torch.distributed that a program makes with gloo are groups of collops "
       "for "
       "CPU tensors ([torch.md](torch.md#programs-that-name-gloo)). Must be equal on all ranks."},
      {"COLLOPS_BACKEND", "not set",
       "Replaces the backend of a struct after the struct was validated: one name (`shm`), or a "
       "map (`hccl=shm,nccl=shm`). A program written for an NPU then runs on a CPU unchanged."},
      {"COLLOPS_CHECK", "0",
       "1: on backends whose engine compares nothing (hccl), the ranks first compare every call "
       "over the host connection, and so wait for each other. Must be equal on all ranks."},
      {"COLLOPS_FUSED", "1",
       "0: LinearParallel runs as a pipeline of collectives and products, as on backends without "
       "windows, unless the operation's `engine` names another way. The result is bit-identical."},
      {"COLLOPS_HCCL_BUFFER_MB", "HCCL_BUFFSIZE, or 200",
       "Megabytes of each of the two buffers that HCCL allocates on the NPU for every communicator "
       "that collops makes ([npu.md](npu.md#memory-and-ports)). Must be equal on all ranks."},
      {"COLLOPS_HCCL_MEET", "1",
       "0: on hccl the ranks do not meet on the host before the first call of each of HCCL's "
       "functions, in which HCCL connects them and waits for them itself ([npu.md](npu.md"
       "#first-calls)). Must be equal on all ranks."},
      {"COLLOPS_HCCL_SUMS", "not set",
       "`rank_order`: on hccl, AllReduce, ReduceScatter and ReduceScatterV add floating-point "
       "numbers in rank order, each rank its own part, so that sums have the bits of the CPU. "
       "This takes more memory and time ([npu.md](npu.md#sums-in-rank-order)). Must be equal on "
       "all ranks."},
      {"COLLOPS_ISA", "the best of this CPU",
       "Forces the instruction set of the kernels: `amx`, `avx512`, `avx2`, `neon` (arm64) or "
       "`portable`. Results do not depend on it, except for the last bits of LinearParallel's "
       "products."},
      {"COLLOPS_JOB_ID", "set by the launcher",
       "The name of the job of this process: the same text in all ranks of a job, a different "
       "text in every other job on the host. A process that "
       "[joins](reliability.md#new-processes-join) a launcher's job has the name that "
       "`comm.grow()` logs, such as `slurm/7/0`."},
      {"COLLOPS_JOB_KEY", "a random one under `collops run -n`",
       "The secret key of the job, the same in all ranks."},
      {"COLLOPS_KERNELS", "the file in the library's folder",
       "The file of the compiled GPU kernels, `collops_kernels.fatbin`."},
      {"COLLOPS_LOCAL_RANK", "not set",
       "The number of this process among the ranks of its host; `collops run` sets it."},
      {"COLLOPS_NUM_THREADS", "cores of this process / ranks of this host, at least 1",
       "Threads that a rank uses for kernels. Results do not depend on it. The cores of a process "
       "are "
       "those of its affinity mask, or fewer where a cgroup of it has a smaller CPU quota."},
      {"COLLOPS_PORT", "29577",
       "The TCP port at which rank 0 waits for the ranks of other hosts; the same in all ranks of "
       "a job, a different one for every other job on rank 0's host."},
      {"COLLOPS_PORT_RANGE", "any free port",
       "`30000-30099`: the ports of every other control connection between hosts, for a firewall. "
       "A "
       "rank takes at most three for each of its communicators ([multihost.md]("
       "multihost.md#what-must-be-reachable))."},
      {"COLLOPS_RANK", "set by the launcher",
       "The rank of this process, set by `run_ranks` and `collops run`. Together with "
       "COLLOPS_RANK_SIZE it takes precedence over the variables of any launcher."},
      {"COLLOPS_RANK_SIZE", "set by the launcher",
       "The number of ranks, set by `run_ranks` and `collops run`."},
      {"COLLOPS_RESTARTS", "not set",
       "How many ranks `collops run --restart` had started anew when it started this process; "
       "above 0 "
       "it joins the others with `collops.init(join=...)` "
       "([run.md](run.md#a-rank-is-started-anew))."},
      {"COLLOPS_SERVER_ID", "found by addresses and host name",
       "The server_id of this host in a rank table, if it cannot be found by address or name."},
      {"COLLOPS_SGLANG", "1",
       "0: SGLang's ranks on CPUs do not use collops where both are installed "
       "([clients.md](clients.md))."},
      {"COLLOPS_TIMEOUT_S", "300",
       "Seconds that a call waits for other ranks before it fails with ERROR_TIMEOUT, which names "
       "the missing ranks."},
      {"COLLOPS_TRACE", "0",
       "1: every call writes one line to standard error: rank, domain, backend, operator, "
       "elements, time. LinearParallel also writes a line for every plan: the engine that runs, "
       "and why no preferred engine runs. 2: LinearParallel also writes a line for every strip of "
       "columns that it has multiplied, with the rank of the rows and the time since the call "
       "began. If the program has configured Python's `logging`, the lines go to the logger "
       "`collops`. `FILE.json`: every rank records its calls, with waits and other work inside "
       "each call, in `FILE.rankN.json`, for Perfetto ([tracing.md](tracing.md))."},
      {"COLLOPS_TUNING", "`all_reduce_one_step_2=256k,all_reduce_one_step=32k,streamed_output=16m`",
       "Sizes at which a call changes its algorithm, `name=size,...`, with k, m or g for a power "
       "of 1024: the longest vectors that AllReduce adds up in one step, with 2 ranks and with "
       "more, and the smallest output that is stored past the caches (a process reads this size "
       "only once). A communicator keeps the sizes with which it was created. All ranks of a host "
       "must have the same sizes. Results do not depend on them."},
      {"COLLOPS_UCX_LIBRARY", "what is loaded, installed, or the system's",
       "The file of UCX's libucp, `libucp.so.0`, for the backend `ucx`; no other file is tried."},
      {"COLLOPS_VLLM", "1",
       "0: vLLM's ranks on CPUs do not use collops where both are installed ([vllm.md](vllm.md))."},
  };
  return *variables;
}

}  // namespace collops
