#include "comm/backends/shm/window_mail.h"

#include "comm/control/bootstrap/socket.h"

namespace collops::shm {

WindowMail::WindowMail(control::Endpoint* endpoint)
    : endpoint_(endpoint),
      received_(static_cast<size_t>(endpoint->size())),
      mapped_(static_cast<size_t>(endpoint->size())) {}

Status WindowMail::Send(WindowTable* table, uint32_t window_id, control::Waiter* waiter) {
  const WindowTable::News news = table->TakeNews(window_id);
  Mail mail;
  mail.rank = endpoint_->rank();
  for (const uint32_t id : news.retired) {
    mail.window_id = id;
    RETURN_IF_ERROR(Broadcast(mail, {}, waiter));
  }
  if (!news.announce) return Ok();
  mail.window_id = window_id;
  mail.bytes = news.bytes;
  return Broadcast(mail, {news.fd}, waiter);
}

Status WindowMail::Broadcast(const Mail& mail, const std::vector<int>& fds, control::Waiter* waiter) {
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (r == endpoint_->rank()) continue;
    const int mailbox = endpoint_->group().peers[static_cast<size_t>(r)].mailbox.get();
    // A closed mailbox is not reported here: the wait for that rank's signal finds out more.
    RETURN_IF_ERROR(waiter->Until(
        [&] { return control::Send(mailbox, &mail, sizeof(mail), fds) != control::Transfer::kWouldBlock; }));
  }
  ++sent_;
  return Ok();
}

Status WindowMail::Expect(int rank, uint64_t count, control::Waiter* waiter) {
  const uint64_t& received = received_[static_cast<size_t>(rank)];
  return waiter->Until([&] {
    while (received < count && TakeOne()) {
    }
    return received >= count;
  });
}

void WindowMail::Drain() {
  while (TakeOne()) {
  }
}

// False when the inbox is empty.
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
  control::Segment segment;
  if (mail.bytes == 0) {
    windows.erase(mail.window_id);
  } else if (fds.size() == 1 && control::Segment::Map(std::move(fds[0]), mail.bytes, &segment).ok()) {
    windows[mail.window_id] = std::move(segment);
  }
  ++received_[static_cast<size_t>(mail.rank)];
  return true;
}

const std::byte* WindowMail::Find(int rank, uint32_t window_id, int64_t offset,
                                  int64_t bytes) const {
  const auto& windows = mapped_[static_cast<size_t>(rank)];
  const auto found = windows.find(window_id);
  if (found == windows.end()) return nullptr;
  const int64_t size = found->second.bytes();
  if (offset < 0 || offset > size || bytes > size - offset) return nullptr;
  return static_cast<const std::byte*>(found->second.data()) + offset;
}

}  // namespace collops::shm
