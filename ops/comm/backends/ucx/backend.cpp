#include "comm/backends/ucx/backend.h"

#include <algorithm>

#include "comm/backends/shm/backend.h"
#include "comm/backends/ucx/communicator.h"
#include "comm/backends/ucx/engine/library.h"
#include "comm/control/control.h"
#include "comm/placement/rank_table/rank_table.h"
#include "kernels/thread_pool.h"

namespace collops::ucx {

namespace {

// Ranks on the host of `rank`; 1 while the table does not say it.
int RanksHere(const RankTable& table, int rank) {
  if (!table.completed) return 1;
  const int own = table.ranks[static_cast<size_t>(rank)].server;
  return static_cast<int>(
      std::count_if(table.ranks.begin(), table.ranks.end(),
                    [own](const RankTable::Rank& other) { return other.server == own; }));
}

}  // namespace

Status Available() {
  const Library* library = nullptr;
  return Load(&library);
}

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const bool one_host = spec.table == nullptr || spec.table->servers.size() == 1;
  if (one_host) return shm::Create(spec, communicator);
  std::shared_ptr<control::Control> control;
  RETURN_IF_ERROR(control::Control::Create(spec, 0, &control, control::Reach::kHosts));
  RETURN_IF_ERROR(kernels::SetDefaultShare(RanksHere(*spec.table, spec.rank)));
  *communicator = std::make_shared<UcxCommunicator>(std::move(control));
  return Ok();
}

int64_t SharedBytes(int rank_size) {
  return shm::SegmentBytes(rank_size);
}

}  // namespace collops::ucx
