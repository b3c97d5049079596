#include "comm/backends/ucx/heads.h"

#include <algorithm>

#include "comm/backends/ucx/engine/tag.h"

namespace collops::ucx {

Heads::Heads(Worker* worker, const HostMap& hosts, int rank) : worker_(worker), rank_(rank) {
  for (const int from : hosts.Sources()) Post(&sources_.emplace_back(from));
  for (const int to : hosts.Targets()) targets_.emplace_back(to);
}

// The number of the step is in the message: what was sent for a refused step has the same tag, so
// that it is received and dropped.
uint64_t Heads::TagOf(int source) {
  return Tag{0, source, 0}.Of(TagKind::kHead);
}

void Heads::Post(Source* source) {
  source->posted = worker_->Receive(source->rank, TagOf(source->rank), &source->head,
                                    sizeof(source->head), &source->request);
}

Status Heads::Send(const control::HostHead& head) {
  sent_ = head;
  for (Target& target : targets_) {
    if (worker_->IsLost(target.rank)) continue;  // the watchers tell of it
    const Status sent =
        worker_->Send(target.rank, TagOf(rank_), &sent_, sizeof(sent_), &target.request);
    if (!worker_->IsLost(target.rank)) RETURN_IF_ERROR(sent);
  }
  return Ok();
}

bool Heads::Sent() {
  return std::all_of(targets_.begin(), targets_.end(), [&](Target& target) {
    return worker_->IsLost(target.rank) || worker_->Test(&target.request);
  });
}

bool Heads::Take(size_t index, control::HostHead* head) {
  Source& source = sources_[index];
  if (!source.posted.ok() || !worker_->Test(&source.request)) return false;
  source.posted = worker_->StatusOf(source.request);
  if (!source.posted.ok()) return false;
  *head = source.request.bytes() == sizeof(source.head) ? source.head : control::HostHead();
  Post(&source);
  return true;
}

Status Heads::LossOf(size_t index) const {
  const Source& source = sources_[index];
  return worker_->IsLost(source.rank) ? worker_->LossOf(source.rank) : source.posted;
}

}  // namespace collops::ucx
