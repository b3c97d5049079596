// This machine and this environment: variables, kernels, cores; and what calls would cost on
// others.

#include <pybind11/stl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <tuple>

#include "collops/comm/backends/backend_table.h"
#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/core/env.h"
#include "collops/core/process/cgroups.h"
#include "collops/kernels/copy.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/thread_pool.h"
#include "module.h"
#include "peak.h"
#include "status.h"

namespace collops::bindings {
namespace {

// name, what holds when it is not set, meaning.
std::vector<std::tuple<std::string, std::string, std::string>> Variables() {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const EnvVariable& row : EnvVariables())
    rows.emplace_back(row.name, row.fallback, row.meaning);
  return rows;
}

// Variables whose values are not valid, what is wrong, and the error that says so.
std::vector<std::tuple<std::string, std::string, std::string>> VariableProblems() {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const EnvProblem& row : EnvProblems()) {
    rows.emplace_back(row.name, row.fault, row.message);
  }
  return rows;
}

// The table of sizes: name, bytes by default, bytes in this environment, meaning.
std::vector<std::tuple<std::string, int64_t, int64_t, std::string>> Sizes() {
  Env env;
  ThrowIfError(Env::Read(&env));
  const Tuning defaults;
  std::vector<std::tuple<std::string, int64_t, int64_t, std::string>> rows;
  for (const TunedSize& row : TunedSizes()) {
    rows.emplace_back(row.name, defaults.*row.size, env.tuning.*row.size, row.meaning);
  }
  return rows;
}

// The kernels in use, all that could be, and how many threads a rank gives them.
std::tuple<std::string, std::vector<std::string>, int> Kernels() {
  std::vector<std::string> runnable;
  for (const kernels::Isa isa : kernels::RunnableIsas()) runnable.emplace_back(kernels::Name(isa));
  ThrowIfError(kernels::CheckIsa());
  return {kernels::Name(kernels::ActiveIsa()), runnable, kernels::NumThreads()};
}

// The cores that this process may use, and the cgroup whose CPU quota says so, if one does.
std::pair<int, std::string> Cores() {
  const UsableCores cores = FindUsableCores();
  return {cores.count, cores.cgroup};
}

// Why this system has no pidfds, by which the end of a rank is seen; empty where it has them.
std::string WithoutPidfds() {
  return control::OpenProcess(getpid()).valid() ? "" : std::strerror(errno);
}

py::dict HostDict(const PredictedHost& host, const PredictedMemory& memory) {
  using namespace py::literals;
  return py::dict("sent_bytes"_a = host.sent_bytes, "received_bytes"_a = host.received_bytes,
                  "sent_messages"_a = host.sent_messages,
                  "received_messages"_a = host.received_messages,
                  "most_messages"_a = host.most_messages, "most_peers"_a = host.most_peers,
                  "all_peers"_a = host.all_peers, "meetings"_a = host.meetings,
                  "copied_bytes"_a = host.copied_bytes, "segment_bytes"_a = memory.segment_bytes,
                  "heads_bytes"_a = memory.heads_bytes, "scratch_bytes"_a = memory.scratch_bytes,
                  "shared_bytes"_a = memory.shared_bytes, "plan_bytes"_a = memory.plan_bytes);
}

// What a call on several hosts would need: trips between them, the figures of each host, and the
// bytes of each link, int64 from host i to host j at [i * hosts + j].
py::tuple PredictCall(bool reduces, std::vector<int> host_of, std::vector<int64_t> counts,
                      const std::string& dtype, const std::string& op) {
  CallToPredict call;
  const bool known = ParseDType(dtype.c_str(), &call.dtype) && ParseReduceOp(op.c_str(), &call.op);
  ThrowIfError(known ? Ok() : Error(ERROR_INVALID_PARAM, "no type ", dtype, ", or no sum ", op));
  call.reduces = reduces;
  call.host_of = std::move(host_of);
  call.counts = std::move(counts);
  Prediction prediction;
  Status status;
  {
    const ReleasedGil released;
    status = FindBackend("ucx")->predict(call, &prediction);
  }
  ThrowIfError(status);
  py::list hosts;
  for (size_t i = 0; i < prediction.hosts.size(); ++i) {
    hosts.append(HostDict(prediction.hosts[i], prediction.memory[i]));
  }
  const auto* const links = reinterpret_cast<const char*>(prediction.link_bytes.data());
  return py::make_tuple(prediction.trips, hosts,
                        py::bytes(links, prediction.link_bytes.size() * sizeof(int64_t)));
}

}  // namespace

void BindMachine(py::module_& module) {
  module.def("env_variables", &Variables);
  module.def("env_problems", &VariableProblems);
  module.def("tuned_sizes", &Sizes);
  module.def("kernels", &Kernels);
  module.def("cores", &Cores);
  module.def("without_pidfds", &WithoutPidfds);
  module.def(
      "segment_bytes", [](int rank_size) { return FindBackend("shm")->shared_bytes(rank_size); },
      py::arg("rank_size"));
  module.def("isa_fault", &kernels::IsaFault);
  module.def("copied_bytes", &kernels::CopiedBytes);
  module.def(
      "run_arithmetic",
      [](int dtype, int64_t rounds) {
        return bench::RunArithmetic(static_cast<DType>(dtype), rounds);
      },
      py::arg("dtype"), py::arg("rounds"), py::call_guard<ReleasedGil>());
  module.attr("MAX_RANKS") = control::kMaxGroupRanks;
  module.attr("MAX_HOST_RANKS") = control::kMaxRanks;
  module.def("predict_call", &PredictCall, py::arg("reduces"), py::arg("host_of"),
             py::arg("counts"), py::arg("dtype"), py::arg("op"));
}

}  // namespace collops::bindings
