// The job of this process: its launcher, rank tables, backends, and its communicators.

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <tuple>

#include "collops/comm/backends/backend_table.h"
#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/comm/registry.h"
#include "collops/core/env.h"
#include "collops/operators/framework/param_check.h"
#include "collops/operators/plain/connect.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

// What the launcher, or RANK_TABLE_FILE, says of this process. `strict`: it must be a rank of the
// table; else it may be one that nobody started as a rank, and then it is none.
std::tuple<std::string, int, int> Launched(bool strict) {
  Placement placement;
  const Status found = FindPlacement({}, &placement);
  const bool started = !DetectLauncher().name.empty() || !GetVariable("DEVICE_ID").empty();
  if (!found.ok() && !strict && !started) return {"", -1, -1};
  ThrowIfError(found);
  return {placement.source, placement.rank, placement.rank_size};
}

// Every backend: its name, why it cannot run here (empty where it can), where its tensors lie, how
// its sums may differ from golden's bits (empty: they do not).
using BackendRow = std::tuple<std::string, std::string, std::string, std::string>;
std::vector<BackendRow> Backends() {
  std::vector<BackendRow> rows;
  for (const Backend& backend : BackendTable()) {
    rows.emplace_back(backend.name, backend.available().message(), backend.memory, backend.sums);
  }
  return rows;
}

// The same without the reason: no backend is asked, so no driver is initialised, which a child of
// fork() could not use then.
std::vector<std::tuple<std::string, std::string, std::string>> BackendKinds() {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const Backend& backend : BackendTable()) {
    rows.emplace_back(backend.name, backend.memory, backend.sums);
  }
  return rows;
}

// What doctor prints of a backend's engine: names and texts.
Facts BackendFacts(const std::string& name) {
  const Backend* const backend = FindBackend(name);
  return backend == nullptr || backend->facts == nullptr ? Facts{} : backend->facts();
}

std::pair<std::string, std::string> Identity() {
  JobIdentity identity;
  std::string digest;
  // A table that cannot be read names no job; who reads it says what is wrong with it.
  if (!FindJobDigest(&digest).ok()) digest.clear();
  ThrowIfError(FindJobIdentity(&identity, digest));
  return {identity.id, identity.source};
}

// Tells every backend that looks for its engine in a Python package where that lies: the folder
// of its libraries, or an empty text.
void FindWheels(const std::function<std::string(const std::string& package)>& folder_of) {
  for (const Backend& backend : BackendTable()) {
    if (backend.set_wheel_folder != nullptr) backend.set_wheel_folder(folder_of(backend.wheel));
  }
}

// A rank table as a dict. here: the server that this host is; not_here: why it is none.
py::dict ReadTable(const std::string& path) {
  RankTable table;
  ThrowIfError(ReadRankTable(path, &table));
  py::list servers;
  for (const RankTable::Server& server : table.servers) {
    servers.append(py::make_tuple(server.id, server.address(), server.super_pod_id));
  }
  py::list ranks;
  for (const RankTable::Rank& rank : table.ranks) {
    ranks.append(py::make_tuple(rank.server, rank.device_id, rank.device_ip));
  }
  int here = -1;
  const Status found = table.completed ? FindServer(table, ThisHost(), &here) : Ok();
  using namespace py::literals;
  return py::dict("version"_a = table.version, "completed"_a = table.completed,
                  "digest"_a = table.digest, "servers"_a = servers, "ranks"_a = ranks,
                  "here"_a = here, "not_here"_a = found.message());
}

// The chip by which the backend judges rank tables, as far as this machine has one.
std::string SocOf(const std::string& name) {
  const Backend* const backend = FindBackend(name);
  return backend == nullptr || backend->soc == nullptr ? "" : backend->soc();
}

// Why a backend refuses the table; empty if it does not.
std::string TableRefusal(const std::string& path, const std::string& backend,
                         const std::string& soc) {
  RankTable table;
  ThrowIfError(ReadRankTable(path, &table));
  return table.completed ? CheckTableFor(backend, table, soc).message() : "";
}

std::string Resolved(const std::string& operation, const std::string& name) {
  Env env;
  ThrowIfError(Env::Read(&env));
  std::string backend;
  ThrowIfError(ResolveBackend(operation.c_str(), env, name, &backend));
  return backend;
}

// A port where the ranks of a job on several hosts meet, open as long as this object lives.
struct MeetingPort {
  std::shared_ptr<control::JobPort> port;
};

MeetingPort OpenPort(const std::string& host, const std::string& job_id) {
  MeetingPort opened;
  ThrowIfError(control::OpenMeetingPort(host, job_id, &opened.port));
  return opened;
}

CommunicatorSpec SpecOf(const std::string& backend, const std::string& comm_domain,
                        double timeout_s, int comm_mode, const std::string& job_id,
                        const std::string& meet_at) {
  CommunicatorSpec spec;
  spec.backend = backend;
  spec.comm_domain = comm_domain;
  spec.timeout_s = timeout_s;
  spec.comm_mode = static_cast<CommMode>(comm_mode);
  spec.job_id = job_id;
  spec.meet_at = meet_at;
  return spec;
}

std::shared_ptr<Communicator> Connected(const std::string& backend, const std::string& comm_domain,
                                        int rank, int rank_size, double timeout_s, int comm_mode,
                                        const std::string& job_id, const std::string& meet_at,
                                        const std::string& tuning) {
  CommunicatorSpec spec = SpecOf(backend, comm_domain, timeout_s, comm_mode, job_id, meet_at);
  spec.rank = rank;
  spec.rank_size = rank_size;
  std::shared_ptr<Communicator> communicator;
  RunWithoutGil([&] { return ConnectGroup(std::move(spec), tuning, &communicator); });
  return communicator;
}

std::shared_ptr<Communicator> Joined(const std::string& backend, const std::string& comm_domain,
                                     double timeout_s, int comm_mode, const std::string& job_id,
                                     const std::string& meet_at) {
  CommunicatorSpec spec = SpecOf(backend, comm_domain, timeout_s, comm_mode, job_id, meet_at);
  std::shared_ptr<Communicator> communicator;
  RunWithoutGil([&] { return JoinGroup(std::move(spec), &communicator); });
  return communicator;
}

}  // namespace

void BindJob(py::module_& module) {
  module.def("set_process_family", &SetProcessFamily, py::arg("id"));
  module.def("launcher", &Launched, py::arg("strict") = true);
  module.def("backends", &Backends);
  module.def("backend_kinds", &BackendKinds);
  module.def("backend_facts", &BackendFacts, py::arg("name"));
  module.def("find_wheels", &FindWheels, py::arg("folder_of"));
  module.def("backend_names", &KnownBackendNames);
  module.def("resolve_backend", &Resolved, py::arg("operation"), py::arg("name"));
  module.def("job_identity", &Identity);
  module.def("read_rank_table", &ReadTable, py::arg("path"));
  module.def("table_refusal", &TableRefusal, py::arg("path"), py::arg("backend"),
             py::arg("soc") = "");
  module.def("soc_name", &SocOf, py::arg("backend"));
  module.def("connect", &Connected, py::arg("backend"), py::arg("comm_domain"), py::arg("rank"),
             py::arg("rank_size"), py::arg("timeout_s"),
             py::arg("comm_mode") = static_cast<int>(COMM_MULTI_PROCESS), py::arg("job_id") = "",
             py::arg("meet_at") = "", py::arg("tuning") = "");
  module.def("join", &Joined, py::arg("backend"), py::arg("comm_domain"), py::arg("timeout_s"),
             py::arg("comm_mode"), py::arg("job_id"), py::arg("meet_at"));
  py::class_<MeetingPort>(module, "MeetingPort")
      .def(py::init(&OpenPort), py::arg("host"), py::arg("job_id"))
      .def_property_readonly("address",
                             [](const MeetingPort& self) { return self.port->address().Text(); });
  module.def(
      "close_all",
      [](const std::string& reason) {
        RunWithoutGil([&] {
          Registry::Instance().CloseAll(reason);
          return Ok();
        });
      },
      py::arg("reason"));
}

}  // namespace collops::bindings
