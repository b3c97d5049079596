#include "comm/backends/hccl/meet.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/backends/hccl/library/error.h"
#include "comm/control/meetings/introduce.h"
#include "comm/placement/rank_table/rank_table.h"
#include "core/per_process.h"

namespace collops::hccl {
namespace {

enum class WayToMeet { kRootInfo, kRankTable, kPart };

const char* Name(WayToMeet way) {
  switch (way) {
    case WayToMeet::kRootInfo:
      return "root info";
    case WayToMeet::kRankTable:
      return "rank table";
    case WayToMeet::kPart:
      return "split";
  }
  return "";
}

WayToMeet WayOf(const CommunicatorSpec& spec) {
  if (spec.engine_part != nullptr) return WayToMeet::kPart;
  return spec.table != nullptr ? WayToMeet::kRankTable : WayToMeet::kRootInfo;
}

// HCCL connects the ranks of a table once per process; further groups of the same ranks are split
// off.
struct Tables {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<CommHandle>> by_path;
};
PerProcess<Tables> tables_here;

Status JoinTable(const Engine& engine, const CommunicatorSpec& spec, int device,
                 std::shared_ptr<CommHandle>* handle) {
  Tables& tables = tables_here.Get();
  const std::lock_guard<std::mutex> lock(tables.mutex);
  std::weak_ptr<CommHandle>& known = tables.by_path[spec.table->path];
  const std::shared_ptr<CommHandle> whole = known.lock();
  if (whole == nullptr) {
    RETURN_IF_ERROR(CommHandle::FromRankTable(engine.api(), device, engine.rank(), engine.size(),
                                              spec.table->path, handle));
    known = *handle;
    return Ok();
  }
  std::vector<int> all;
  for (int r = 0; r < engine.size(); ++r) all.push_back(r);
  return CommHandle::Split(whole, all, engine.rank(), Concat("collops/", spec.comm_domain), handle);
}

bool OnSeveralServers(control::Control& control, int size) {
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(r);
  return control::OnSeveralHosts(control.endpoint().group(), all);
}

}  // namespace

Status Meet(control::Control* control, bool compares, int device, Engine* engine) {
  const CommunicatorSpec& spec = control->spec();
  const WayToMeet way = WayOf(spec);
  Abilities abilities = AbilitiesOf(engine->api(), false);
  RootInfo root_info = {};
  if (control->has_board()) {
    abilities = AbilitiesOf(engine->api(), OnSeveralServers(*control, engine->size()));
    if (way == WayToMeet::kRootInfo && engine->rank() == 0) {
      RETURN_IF_ERROR(
          ToStatus(engine->api(), engine->api().get_root_info(&root_info), "HcclGetRootInfo"));
    }
    Agreement agreement(kFirstContact);
    agreement.EqualText("COLLOPS_CHECK", compares ? "1" : "0")
        .EqualText("the way to meet", Name(way))
        .EqualText("HcclAllGatherV", abilities.all_gather_v ? "there" : "missing")
        .EqualText("HcclReduceScatterV", abilities.reduce_scatter_v ? "there" : "missing");
    std::vector<RootInfo> all(static_cast<size_t>(engine->size()));
    RETURN_IF_ERROR(control->Share(agreement, &root_info, kRootInfoBytes, all.data()));
    root_info = all[0];
  }
  std::shared_ptr<CommHandle> handle;
  switch (way) {
    case WayToMeet::kRootInfo:
      RETURN_IF_ERROR(CommHandle::FromRootInfo(engine->api(), device, engine->rank(),
                                               engine->size(), root_info, &handle));
      break;
    case WayToMeet::kRankTable:
      RETURN_IF_ERROR(JoinTable(*engine, spec, device, &handle));
      break;
    case WayToMeet::kPart:
      handle = std::static_pointer_cast<CommHandle>(spec.engine_part);
      break;
  }
  return engine->Connect(std::move(handle), std::move(abilities));
}

}  // namespace collops::hccl
