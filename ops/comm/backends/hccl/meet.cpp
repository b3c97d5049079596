#include "comm/backends/hccl/meet.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/backends/hccl/library/error.h"
#include "comm/control/meetings/introduce.h"
#include "comm/placement/rank_table/rank_table.h"
#include "core/per_process.h"

namespace collops::hccl {
namespace {

enum class WayToMeet { kRootInfo, kRankTable, kPartOfTable, kPart };

const char* Name(WayToMeet way) {
  switch (way) {
    case WayToMeet::kRootInfo:
      return "root info";
    case WayToMeet::kRankTable:
      return "rank table";
    case WayToMeet::kPartOfTable:
      return "split of the rank table's group";
    case WayToMeet::kPart:
      return "split";
  }
  return "";
}

// HCCL connects a rank of a table once per process; further groups of the same ranks are split off.
// Ranks may be threads of one process.
class Tables {
 public:
  std::shared_ptr<CommHandle> Find(const std::string& path, int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return known_[{path, rank}].lock();
  }

  void Add(const std::string& path, int rank, const std::shared_ptr<CommHandle>& handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    known_[{path, rank}] = handle;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::weak_ptr<CommHandle>> known_;
};
PerProcess<Tables> tables_here;

WayToMeet WayOf(const CommunicatorSpec& spec, int rank, std::shared_ptr<CommHandle>* whole) {
  if (spec.engine_part != nullptr) return WayToMeet::kPart;
  if (spec.table == nullptr) return WayToMeet::kRootInfo;
  *whole = tables_here.Get().Find(spec.table->path, rank);
  return *whole == nullptr ? WayToMeet::kRankTable : WayToMeet::kPartOfTable;
}

// Not known without a board.
bool OnSeveralServers(control::Control& control, int size) {
  return control.has_board() && control::OnSeveralHosts(control.endpoint().group(), AllRanks(size));
}

}  // namespace

Status Meet(control::Control* control, bool compares, int device, Engine* engine) {
  const CommunicatorSpec& spec = control->spec();
  std::shared_ptr<CommHandle> whole;
  const WayToMeet way = WayOf(spec, engine->rank(), &whole);
  Abilities abilities = AbilitiesOf(engine->api(), OnSeveralServers(*control, engine->size()));
  RootInfo root_info = {};
  if (control->has_board()) {
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
      RETURN_IF_ERROR(CommHandle::FromRankTable(engine->api(), device, engine->rank(),
                                                engine->size(), spec.table->path, &handle));
      tables_here.Get().Add(spec.table->path, engine->rank(), handle);
      break;
    case WayToMeet::kPartOfTable:
      RETURN_IF_ERROR(CommHandle::Split(whole, AllRanks(engine->size()), engine->rank(),
                                        Concat("collops/", spec.comm_domain), &handle));
      break;
    case WayToMeet::kPart:
      handle = *std::static_pointer_cast<PartInSpec>(spec.engine_part);
      break;
  }
  RETURN_IF_ERROR(engine->Connect(std::move(handle), std::move(abilities)));
  if (way == WayToMeet::kPart) std::static_pointer_cast<PartInSpec>(spec.engine_part)->reset();
  return Ok();
}

}  // namespace collops::hccl
