#include "collops/comm/backends/hccl/engine.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/control/meetings/introduce.h"
#include "collops/comm/placement/rank_table/rank_table.h"
#include "collops/core/process/per_process.h"

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

// Connects the ranks by the part that a split made, by the group's rank table, or by rank 0's root
// info, which goes over the host connection. The ranks also agree on what HCCL has on their SoCs.
// In HCCL it waits at most HCCL_CONNECT_TIMEOUT.
Status Engine::Meet(control::Control* control, bool compares, int device) {
  if (caller_comm_ != nullptr) return Connect(caller_comm_, AbilitiesOf(api_, false));
  const CommunicatorSpec& spec = control->spec();
  std::shared_ptr<CommHandle> whole;
  const WayToMeet way = WayOf(spec, rank_, &whole);
  Abilities abilities = AbilitiesOf(api_, OnSeveralServers(*control, size_));
  RootInfo root_info = {};
  if (control->has_board()) {
    if (way == WayToMeet::kRootInfo && rank_ == 0) {
      COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.get_root_info(&root_info), "HcclGetRootInfo"));
    }
    Agreement agreement(kFirstContact);
    agreement.EqualText("COLLOPS_CHECK", compares ? "1" : "0")
        .EqualText("the way to meet", Name(way))
        .EqualText("HcclAllGatherV", abilities.all_gather_v ? "there" : "missing")
        .EqualText("HcclReduceScatterV", abilities.reduce_scatter_v ? "there" : "missing");
    std::vector<RootInfo> all(static_cast<size_t>(size_));
    COLLOPS_RETURN_IF_ERROR(control->Share(agreement, &root_info, kRootInfoBytes, all.data()));
    root_info = all[0];
  }
  std::shared_ptr<CommHandle> handle;
  switch (way) {
    case WayToMeet::kRootInfo:
      COLLOPS_RETURN_IF_ERROR(
          CommHandle::FromRootInfo(api_, device, rank_, size_, root_info, &handle));
      break;
    case WayToMeet::kRankTable:
      COLLOPS_RETURN_IF_ERROR(
          CommHandle::FromRankTable(api_, device, rank_, size_, spec.table->path, &handle));
      tables_here.Get().Add(spec.table->path, rank_, handle);
      break;
    case WayToMeet::kPartOfTable:
      COLLOPS_RETURN_IF_ERROR(CommHandle::Split(whole, AllRanks(size_), rank_,
                                                Concat("collops/", spec.comm_domain), &handle));
      break;
    case WayToMeet::kPart:
      handle = *std::static_pointer_cast<PartInSpec>(spec.engine_part);
      break;
  }
  COLLOPS_RETURN_IF_ERROR(Connect(std::move(handle), std::move(abilities)));
  if (way == WayToMeet::kPart) std::static_pointer_cast<PartInSpec>(spec.engine_part)->reset();
  return Ok();
}

}  // namespace collops::hccl
