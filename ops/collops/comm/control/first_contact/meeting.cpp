#include "collops/comm/control/first_contact/meeting.h"

#include <chrono>
#include <thread>
#include <utility>

#include "collops/comm/placement/placement.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/process/interrupt.h"
#include "collops/core/trace/log.h"

namespace collops::control {
namespace {

constexpr double kTellAfterS = 10.0;

// HCCL's own loader looks once a second.
constexpr int kTablePollMs = 100;

}  // namespace

Status Meeting::CheckWanted() const {
  COLLOPS_CHECK_ARG(!stopped_.load(std::memory_order_acquire), ERROR_ABORTED,
                    "first contact was stopped");
  COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "first contact was interrupted");
  return Ok();
}

void WaitingLine::Tell(const std::function<std::string()>& line) {
  if (!silence_) silence_ = Deadline::After(kTellAfterS);
  if (told_ || !silence_->Passed()) return;
  told_ = true;
  Log(LogLevel::kWarning, line());
}

std::string WaitingText(int rank, const std::string& comm_domain, const std::string& whom,
                        const std::string& job) {
  const std::string domain =
      comm_domain.empty() ? "" : Concat(" of comm_domain \"", comm_domain, "\"");
  return Concat("collops: rank ", rank, domain, ": waiting for ", whom, " (", job, ")");
}

// The table's writer replaces it as a whole or writes it in place: a text that is no table yet, or
// a file that is gone for a moment, is read again.
Status AwaitRankTable(const RankTable& open, const Deadline& deadline,
                      const std::function<Status()>& watch, RankTable* table) {
  while (true) {
    const Status read = ReadRankTable(open.path, table);
    if (read.ok() && table->completed) return Ok();
    COLLOPS_RETURN_IF_ERROR(watch());
    if (deadline.Passed()) {
      return Error(ERROR_TIMEOUT, open.file, " was not complete in ", deadline.timeout_s(),
                   " s: ", read.ok() ? "its status is \"initializing\"" : read.message());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kTablePollMs));
  }
}

AwaitedTable::AwaitedTable(const GroupSpec& spec, Factory factory)
    : Meeting(spec), spec_(spec), factory_(std::move(factory)) {
  spec_.watch = WatchOfPart();
}

Status AwaitedTable::Complete(const Deadline& deadline, Group* group) {
  RankTable table;
  const auto watch = [this] {
    waiting_.Tell([this] {
      return Concat("collops: rank ", spec_.rank, ": waiting for ", spec_.table->file,
                    " to be complete (\"status\": \"completed\")");
    });
    return spec_.watch();
  };
  COLLOPS_RETURN_IF_ERROR(AwaitRankTable(*spec_.table, deadline, watch, &table));
  COLLOPS_RETURN_IF_ERROR(CheckTable(table, spec_.rank, spec_.rank_size, spec_.voice));
  COLLOPS_RETURN_IF_ERROR(factory_(spec_, table, &meeting_));
  meeting_->Begin();
  group->table_digest = table.digest;
  return meeting_->Complete(deadline, group);
}

}  // namespace collops::control
