#include "collops/comm/backends/shm/windows/window_table.h"

#include <algorithm>

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
    num_news_.fetch_add(1, std::memory_order_relaxed);
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

bool WindowTable::FindNews(uint32_t id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !retired_.empty() ||
         std::any_of(entries_.begin(), entries_.end(),
                     [id](const Entry& entry) { return entry.id == id && !entry.announced; });
}

WindowTable::News WindowTable::TakeNews(uint32_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  News news;
  news.retired.swap(retired_);
  num_news_.fetch_sub(static_cast<int>(news.retired.size()), std::memory_order_relaxed);
  for (Entry& entry : entries_) {
    if (entry.id != id || entry.announced) continue;
    entry.announced = true;
    num_news_.fetch_sub(1, std::memory_order_relaxed);
    news.announce = true;
    news.fd = entry.fd;
    news.bytes = entry.bytes;
  }
  return news;
}

void WindowTable::Remove(uint32_t id) {
  // In a child of fork() the table is the parent's, and its lock may be held for ever.
  if (fork_generation_ != ForkGeneration()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [id](const Entry& candidate) { return candidate.id == id; });
  // From now on what the peers do not know is that it is gone, or nothing.
  num_news_.fetch_add(entry->announced ? 1 : -1, std::memory_order_relaxed);
  if (entry->announced) retired_.push_back(id);
  entries_.erase(entry);
}

}  // namespace collops::shm
