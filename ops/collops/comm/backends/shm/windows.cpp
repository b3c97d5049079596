#include "collops/comm/backends/shm/windows.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "collops/comm/control/first_contact/local_socket.h"

namespace collops::shm {

class WindowTable::OwnedWindow : public Window {
 public:
  OwnedWindow(std::shared_ptr<WindowTable> table, uint32_t id, control::Segment segment)
      : table_(std::move(table)), id_(id), segment_(std::move(segment)) {}
  ~OwnedWindow() override { table_->Remove(id_); }

  void* data() const override { return segment_.data(); }
  int64_t bytes() const override { return segment_.bytes(); }
  const RankSet& peers() const override { return table_->peers(); }

 private:
  std::shared_ptr<WindowTable> table_;
  uint32_t id_;
  control::Segment segment_;
};

Status WindowTable::Allocate(int64_t bytes, std::shared_ptr<Window>* window, User user) {
  control::Segment segment;
  COLLOPS_RETURN_IF_ERROR(control::Segment::Create(std::max<int64_t>(bytes, 1), &segment));
  std::shared_ptr<Window> made;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint32_t id = next_id_++;
    entries_.push_back({id, static_cast<const std::byte*>(segment.data()), segment.bytes(),
                        segment.fd(), false, user});
    num_updates_.fetch_add(1, std::memory_order_relaxed);
    made = std::make_shared<OwnedWindow>(shared_from_this(), id, std::move(segment));
  }
  *window = std::move(made);  // the previous window's destructor removes it from the table
  return Ok();
}

bool WindowTable::HasCallers() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.user == User::kCaller; });
}

bool WindowTable::Find(const void* data, int64_t bytes, WindowSpot* spot) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    const int64_t offset = static_cast<const std::byte*>(data) - entry.data;
    if (offset < 0 || offset > entry.bytes || bytes > entry.bytes - offset) continue;
    *spot = {entry.id, offset};
    return true;
  }
  return false;
}

const std::byte* WindowTable::Address(const WindowSpot& spot, int64_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.id != spot.id) continue;
    const bool inside = spot.offset >= 0 && spot.offset <= entry.bytes && bytes >= 0 &&
                        bytes <= entry.bytes - spot.offset;
    return inside ? entry.data + spot.offset : nullptr;
  }
  return nullptr;
}

bool WindowTable::FindUpdates(uint32_t id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !retired_.empty() ||
         std::any_of(entries_.begin(), entries_.end(),
                     [id](const Entry& entry) { return entry.id == id && !entry.announced; });
}

WindowTable::Updates WindowTable::TakeUpdates(uint32_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Updates updates;
  updates.retired.swap(retired_);
  num_updates_.fetch_sub(static_cast<int>(updates.retired.size()), std::memory_order_relaxed);
  for (Entry& entry : entries_) {
    if (entry.id != id || entry.announced) continue;
    entry.announced = true;
    num_updates_.fetch_sub(1, std::memory_order_relaxed);
    updates.announce = true;
    updates.fd = entry.fd;
    updates.bytes = entry.bytes;
  }
  return updates;
}

void WindowTable::Remove(uint32_t id) {
  // In a child of fork() the table is the parent's, and its lock may be held for ever.
  if (fork_generation_ != ForkGeneration()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [id](const Entry& candidate) { return candidate.id == id; });
  // From now on what the peers do not know is that it is gone, or nothing.
  num_updates_.fetch_add(entry->announced ? 1 : -1, std::memory_order_relaxed);
  if (entry->announced) retired_.push_back(id);
  entries_.erase(entry);
}

WindowMailbox::WindowMailbox(control::Endpoint* endpoint, WindowTable* table)
    : endpoint_(endpoint),
      table_(table),
      received_(std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(endpoint->size()))),
      mapped_(static_cast<size_t>(endpoint->size())) {}

Status WindowMailbox::Send(uint32_t window_id, control::Waiter* waiter) {
  bool sent = false;
  Status status = TrySend(window_id, &sent);
  if (sent || !status.ok()) return status;
  COLLOPS_RETURN_IF_ERROR(waiter->Until([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    status = Flush(&sent);
    return sent || !status.ok();
  }));
  return status;
}

Status WindowMailbox::TrySend(uint32_t window_id, bool* sent) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const WindowTable::Updates updates = table_->TakeUpdates(window_id);
  Mail mail;
  mail.rank = endpoint_->rank();
  for (const uint32_t id : updates.retired) {
    mail.window_id = id;
    Enqueue(mail, -1);
  }
  mail.window_id = window_id;
  mail.bytes = updates.bytes;
  if (updates.announce) Enqueue(mail, updates.fd);
  return Flush(sent);
}

void WindowMailbox::Enqueue(const Mail& mail, int fd) {
  Outgoing outgoing;
  outgoing.mail = mail;
  outgoing.fd = fd;
  outgoing_.push_back(std::move(outgoing));
  sent_.fetch_add(1, std::memory_order_relaxed);
}

// A window may be freed before its mail finds room, so a mail that waits owns a duplicate
// descriptor.
Status WindowMailbox::Flush(bool* done) {
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
bool WindowMailbox::SendOn(Outgoing* outgoing) {
  const std::vector<int> fds(outgoing->fd < 0 ? 0 : 1, outgoing->fd);
  for (int& r = outgoing->next; r < endpoint_->size(); ++r) {
    if (r == endpoint_->rank()) continue;
    const int mailbox = endpoint_->group().peers[static_cast<size_t>(r)].mailbox.get();
    const control::SocketResult transfer =
        control::Send(mailbox, &outgoing->mail, sizeof(outgoing->mail), fds);
    if (transfer == control::SocketResult::kWouldBlock) return false;
  }
  return true;
}

Status WindowMailbox::Expect(int rank, uint64_t count, control::Waiter* waiter) {
  return waiter->Until([&] {
    if (received(rank) < count) Drain();
    return received(rank) >= count;
  });
}

void WindowMailbox::Drain() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (TakeOne()) {
  }
}

// False if the inbox is empty.
bool WindowMailbox::TakeOne() {
  Mail mail;
  size_t bytes = 0;
  std::vector<control::UniqueFd> fds;
  const int inbox = endpoint_->group().inbox.get();
  if (inbox < 0) return false;
  const control::SocketResult transfer = control::Receive(inbox, &mail, sizeof(mail), &bytes, &fds);
  if (transfer == control::SocketResult::kNoDescriptors) {
    lost_descriptors_ = true;
    fds.clear();
  } else if (transfer != control::SocketResult::kDone) {
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

control::Segment WindowMailbox::Find(int rank, uint32_t window_id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto& windows = mapped_[static_cast<size_t>(rank)];
  const auto found = windows.find(window_id);
  return found == windows.end() ? control::Segment() : found->second.segment;
}

const std::byte* WindowMailbox::Range(const control::Segment& window, int64_t offset,
                                      int64_t bytes) {
  const int64_t size = window.bytes();
  const bool inside = offset >= 0 && offset <= size && bytes <= size - offset;
  if (window.data() == nullptr || !inside) return nullptr;
  return static_cast<const std::byte*>(window.data()) + offset;
}

Status WindowMailbox::WhyNotMapped(int rank, uint32_t window_id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (lost_descriptors_) return control::TooManyFiles();
  const auto& windows = mapped_[static_cast<size_t>(rank)];
  const auto found = windows.find(window_id);
  if (found == windows.end() || found->second.status.ok()) return Ok();
  const Status& status = found->second.status;
  return Error(status.code(), "the window of ", endpoint_->Who(rank), ": ", status.message());
}

}  // namespace collops::shm
