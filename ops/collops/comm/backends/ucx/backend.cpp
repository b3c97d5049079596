#include "collops/comm/backends/ucx/backend.h"

#include <algorithm>

#include "collops/comm/backends/shm/backend.h"
#include "collops/comm/backends/ucx/communicator.h"
#include "collops/comm/backends/ucx/engine/context.h"
#include "collops/comm/backends/ucx/engine/library.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/meetings/part_meeting.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/placement/job_place.h"
#include "collops/comm/placement/rank_table/rank_table.h"
#include "collops/kernels/thread_pool.h"

namespace collops::ucx {

namespace {

// Ranks on this rank's host, as its parent, the table or the launcher says; 1 while nothing says
// it.
int RanksHere(const CommunicatorSpec& spec) {
  const auto count = [rank = static_cast<size_t>(spec.rank)](const auto& all, auto host_of) {
    return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const auto& other) {
      return host_of(other) == host_of(all[rank]);
    }));
  };
  if (spec.introduction != nullptr) {
    return count(spec.introduction->rows, [](const auto& row) { return row.host; });
  }
  if (spec.table == nullptr) return std::max(DetectLauncher().local_size, 1);
  if (!spec.table->completed) return 1;
  return count(spec.table->ranks, [](const auto& rank) { return rank.server; });
}

// A table that somebody still writes may place the ranks on several hosts.
Status IsOnOneHost(const CommunicatorSpec& spec, bool* one_host) {
  const bool agreed = !spec.job_id.empty() && spec.introduction == nullptr;
  *one_host =
      spec.one_host || spec.comm_mode == COMM_MULTI_THREAD || (agreed && spec.meet_at.empty());
  const bool open = spec.table != nullptr && !spec.table->completed;
  if (*one_host || open || agreed || spec.introduction != nullptr) return Ok();
  JobPlace place;
  COLLOPS_RETURN_IF_ERROR(FindJobPlace(spec.table, spec.rank, &place));
  *one_host = place.address.empty();
  return Ok();
}

}  // namespace

Status Available() {
  const Library* library = nullptr;
  return Load(&library);
}

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  bool one_host = false;
  COLLOPS_RETURN_IF_ERROR(IsOnOneHost(spec, &one_host));
  if (one_host) return shm::Create(spec, communicator);
  std::shared_ptr<control::Control> control;
  COLLOPS_RETURN_IF_ERROR(control::Control::Create(spec, 0, &control, control::Reach::kHosts));
  COLLOPS_RETURN_IF_ERROR(kernels::SetDefaultShare(RanksHere(spec)));
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
