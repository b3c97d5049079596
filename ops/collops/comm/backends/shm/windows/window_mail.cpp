#include "collops/comm/backends/shm/windows/window_mail.h"

#include <fcntl.h>

#include <utility>

#include "collops/comm/control/bootstrap/socket.h"

namespace collops::shm {

WindowMail::WindowMail(control::Endpoint* endpoint)
    : endpoint_(endpoint),
      received_(std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(endpoint->size()))),
      mapped_(static_cast<size_t>(endpoint->size())) {}

Status WindowMail::Send(WindowTable* table, uint32_t window_id, control::Waiter* waiter) {
  bool sent = false;
  Status status = TrySend(table, window_id, &sent);
  if (sent || !status.ok()) return status;
  COLLOPS_RETURN_IF_ERROR(waiter->Until([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    status = Flush(&sent);
    return sent || !status.ok();
  }));
  return status;
}

Status WindowMail::TrySend(WindowTable* table, uint32_t window_id, bool* sent) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const WindowTable::News news = table->TakeNews(window_id);
  Mail mail;
  mail.rank = endpoint_->rank();
  for (const uint32_t id : news.retired) {
    mail.window_id = id;
    Enqueue(mail, -1);
  }
  mail.window_id = window_id;
  mail.bytes = news.bytes;
  if (news.announce) Enqueue(mail, news.fd);
  return Flush(sent);
}

void WindowMail::Enqueue(const Mail& mail, int fd) {
  Outgoing outgoing;
  outgoing.mail = mail;
  outgoing.fd = fd;
  outgoing_.push_back(std::move(outgoing));
  sent_.fetch_add(1, std::memory_order_relaxed);
}

// A window may be freed before its mail finds room, so a mail that waits owns a duplicate
// descriptor.
Status WindowMail::Flush(bool* done) {
  while (!outgoing_.empty() && SendOn(&outgoing_.front())) outgoing_.pop_front();
  *done = outgoing_.empty();
  for (Outgoing& outgoing : outgoing_) {
    if (outgoing.fd < 0 || outgoing.kept.valid()) continue;
    outgoing.kept = control::UniqueFd(fcntl(outgoing.fd, F_DUPFD_CLOEXEC, 0));
    if (!outgoing.kept.valid()) return control::TooManyFiles();
    outgoing.fd = outgoing.kept.get();
  }
  return Ok();
}

// False while a peer's mailbox is full. A closed mailbox is not reported here: the wait for that
// rank's signal finds the reason.
bool WindowMail::SendOn(Outgoing* outgoing) {
  const std::vector<int> fds(outgoing->fd < 0 ? 0 : 1, outgoing->fd);
  for (int& r = outgoing->next; r < endpoint_->size(); ++r) {
    if (r == endpoint_->rank()) continue;
    const int mailbox = endpoint_->group().peers[static_cast<size_t>(r)].mailbox.get();
    const control::Transfer transfer =
        control::Send(mailbox, &outgoing->mail, sizeof(outgoing->mail), fds);
    if (transfer == control::Transfer::kWouldBlock) return false;
  }
  return true;
}

Status WindowMail::Expect(int rank, uint64_t count, control::Waiter* waiter) {
  return waiter->Until([&] {
    if (received(rank) < count) Drain();
    return received(rank) >= count;
  });
}

void WindowMail::Drain() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (TakeOne()) {
  }
}

// False if the inbox is empty.
bool WindowMail::TakeOne() {
  Mail mail;
  size_t bytes = 0;
  std::vector<control::UniqueFd> fds;
  const int inbox = endpoint_->group().inbox.get();
  if (inbox < 0) return false;
  const control::Transfer transfer = control::Receive(inbox, &mail, sizeof(mail), &bytes, &fds);
  if (transfer == control::Transfer::kNoDescriptors) {
    lost_descriptors_ = true;
    fds.clear();
  } else if (transfer != control::Transfer::kDone) {
    return false;
  }
  if (bytes != sizeof(mail) || mail.rank < 0 || mail.rank >= endpoint_->size()) return true;
  auto& windows = mapped_[static_cast<size_t>(mail.rank)];
  if (mail.bytes == 0) {
    windows.erase(mail.window_id);
  } else if (fds.size() == 1) {
    Mapped& mapped = windows[mail.window_id];
    mapped.segment = control::Segment();
    mapped.status = control::Segment::Map(std::move(fds[0]), mail.bytes, &mapped.segment);
  }
  received_[static_cast<size_t>(mail.rank)].fetch_add(1, std::memory_order_release);
  return true;
}

control::Segment WindowMail::Find(int rank, uint32_t window_id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto& windows = mapped_[static_cast<size_t>(rank)];
  const auto found = windows.find(window_id);
  return found == windows.end() ? control::Segment() : found->second.segment;
}

const std::byte* WindowMail::Range(const control::Segment& window, int64_t offset, int64_t bytes) {
  const int64_t size = window.bytes();
  const bool inside = offset >= 0 && offset <= size && bytes <= size - offset;
  if (window.data() == nullptr || !inside) return nullptr;
  return static_cast<const std::byte*>(window.data()) + offset;
}

Status WindowMail::WhyNotMapped(int rank, uint32_t window_id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (lost_descriptors_) return control::TooManyFiles();
  const auto& windows = mapped_[static_cast<size_t>(rank)];
  const auto found = windows.find(window_id);
  if (found == windows.end() || found->second.status.ok()) return Ok();
  const Status& status = found->second.status;
  return Error(status.code(), "the window of ", endpoint_->Who(rank), ": ", status.message());
}

}  // namespace collops::shm
