#include "comm/backends/ucx/backend.h"

#include <algorithm>

#include "comm/backends/shm/backend.h"
#include "comm/backends/ucx/communicator.h"
#include "comm/backends/ucx/engine/context.h"
#include "comm/backends/ucx/engine/library.h"
#include "comm/control/control.h"
#include "comm/control/part_meeting.h"
#include "comm/placement/rank_table/rank_table.h"
#include "kernels/thread_pool.h"

namespace collops::ucx {

namespace {

// Ranks on this rank's host; 1 while the table does not say it.
int RanksHere(const CommunicatorSpec& spec) {
  const auto count = [rank = static_cast<size_t>(spec.rank)](const auto& all, auto host_of) {
    return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const auto& other) {
      return host_of(other) == host_of(all[rank]);
    }));
  };
  if (spec.introduction != nullptr) {
    return count(spec.introduction->rows, [](const auto& row) { return row.host; });
  }
  if (!spec.table->completed) return 1;
  return count(spec.table->ranks, [](const auto& rank) { return rank.server; });
}

}  // namespace

Status Available() {
  const Library* library = nullptr;
  return Load(&library);
}

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const bool one_host =
      spec.introduction == nullptr && (spec.table == nullptr || spec.table->servers.size() == 1);
  if (one_host) return shm::Create(spec, communicator);
  std::shared_ptr<control::Control> control;
  RETURN_IF_ERROR(control::Control::Create(spec, 0, &control, control::Reach::kHosts));
  RETURN_IF_ERROR(kernels::SetDefaultShare(RanksHere(spec)));
  *communicator = std::make_shared<UcxCommunicator>(std::move(control));
  return Ok();
}

int64_t SharedBytes(int rank_size) {
  return shm::SegmentBytes(rank_size);
}

std::vector<std::pair<std::string, std::string>> ShownFacts() {
  Report report;
  const Status described = Describe(&report);
  if (!described.ok()) return {{"no", described.message()}};
  std::string transports;
  for (const std::string& transport : report.transports) {
    transports += (transports.empty() ? "" : ", ") + transport;
  }
  return {{"library", Concat(report.path, " (", report.source, ")")},
          {"version", report.version},
          {"transports", transports},
          {"RDMA", ShowRdma(report)}};
}

}  // namespace collops::ucx
