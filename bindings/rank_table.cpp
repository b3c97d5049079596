#include "collops/comm/placement/rank_table.h"
#include "collops/comm/backends/backend_table.h"
#include "collops/comm/placement/placement.h"
#include "module.h"
#include "status.h"

namespace collops::bindings {
namespace {

// A rank table as a dict. here: the server that this host is; not_here: why it is none;
// device_fault: what HCCL would refuse, or empty. refusals: the same of every backend, by its name.
py::dict ReadTable(const std::string& path) {
  RankTable table;
  ThrowIfError(ReadRankTable(path, &table));
  py::list servers;
  for (const RankTable::Server& server : table.servers) {
    servers.append(py::make_tuple(server.id, server.host_ip, server.super_pod_id));
  }
  py::list ranks;
  for (const RankTable::Rank& rank : table.ranks) {
    ranks.append(py::make_tuple(rank.server, rank.device_id, rank.device_ip));
  }
  int here = -1;
  const Status found = table.completed ? FindServer(table, ThisHost(), &here) : Ok();
  py::dict refusals;
  for (const Backend& backend : BackendTable()) {
    const Status checked = table.completed ? CheckTableOf(backend.name, table) : Ok();
    refusals[backend.name] = checked.message();
  }
  using namespace py::literals;
  return py::dict("version"_a = table.version, "completed"_a = table.completed,
                  "digest"_a = table.digest, "servers"_a = servers, "ranks"_a = ranks,
                  "here"_a = here, "not_here"_a = found.message(),
                  "device_fault"_a = CheckDeviceRules(table).message(), "refusals"_a = refusals);
}

}  // namespace

void BindRankTable(py::module_& module) {
  module.def("read_rank_table", &ReadTable, py::arg("path"));
}

}  // namespace collops::bindings
