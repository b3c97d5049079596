#include "collops/comm/backends/ucx/heads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collops/comm/backends/ucx/engine/tag.h"

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
  Mail& mail = source->mails[source->next];
  source->posted = worker_->Receive(source->rank, TagOf(source->rank), &mail.message,
                                    sizeof(mail.message), &mail.request);
}

void Heads::Attach(int to, const void* data, int64_t bytes) {
  for (Target& target : targets_) {
    if (target.rank != to) continue;
    target.data = data;
    target.bytes = static_cast<size_t>(bytes);
  }
}

void Heads::Clear() {
  for (Target& target : targets_) target.bytes = 0;
}

Status Heads::CopyTo(void* memory, int from, int64_t bytes) const {
  const auto source = std::find_if(sources_.begin(), sources_.end(),
                                   [&](const Source& each) { return each.rank == from; });
  const Mail& mail = source->mails[1 - source->next];
  const auto expected = static_cast<size_t>(bytes) + sizeof(mail.message.head);
  COLLOPS_CHECK_ARG(mail.request.bytes() == expected, ERROR_RANK_MISMATCH, "backend ucx: peer ",
                    from, " sent a first message of ", mail.request.bytes(), " bytes, it has ",
                    expected, " here");
  std::memcpy(memory, mail.message.attached, static_cast<size_t>(bytes));
  return Ok();
}

Status Heads::Send(const control::HostHead& head) {
  for (Target& target : targets_) {
    if (worker_->IsLost(target.rank)) continue;  // the watchers tell of it
    Message& message = target.mail.message;
    message.head = head;
    if (target.bytes > 0) std::memcpy(message.attached, target.data, target.bytes);
    const size_t bytes = sizeof(head) + std::exchange(target.bytes, 0);
    const Status sent =
        worker_->Send(target.rank, TagOf(rank_), &message, bytes, &target.mail.request);
    if (!worker_->IsLost(target.rank)) COLLOPS_RETURN_IF_ERROR(sent);
  }
  return Ok();
}

bool Heads::Sent() {
  return std::all_of(targets_.begin(), targets_.end(), [&](Target& target) {
    return worker_->IsLost(target.rank) || worker_->Test(&target.mail.request);
  });
}

bool Heads::Take(size_t index, control::HostHead* head) {
  Source& source = sources_[index];
  Mail& mail = source.mails[source.next];
  if (!source.posted.ok() || !worker_->Test(&mail.request)) return false;
  source.posted = worker_->StatusOf(mail.request);
  if (!source.posted.ok()) return false;
  // One that is cut short is one of no step.
  *head = mail.request.bytes() < sizeof(*head) ? control::HostHead() : mail.message.head;
  source.next = 1 - source.next;
  Post(&source);
  return true;
}

Status Heads::LossOf(size_t index) const {
  const Source& source = sources_[index];
  return worker_->IsLost(source.rank) ? worker_->LossOf(source.rank) : source.posted;
}

}  // namespace collops::ucx
