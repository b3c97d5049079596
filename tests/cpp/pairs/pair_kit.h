// Shared by the tests of the pair lane: transfers with data that differs per message and position,
// a group that can be told to fail, and windows of ranks in this process.
#ifndef COLLOPS_TESTS_CPP_PAIR_KIT_H_
#define COLLOPS_TESTS_CPP_PAIR_KIT_H_

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "collops/comm/backends/shm/pairs/pair_wire.h"
#include "collops/comm/pairs/pair_lane.h"

namespace pairs {

using collops::DType;
using collops::Error;
using collops::Ok;
using collops::PairLane;
using collops::Status;
using collops::Transfer;
using collops::TransferHandle;

class Group : public collops::PairGroup {
 public:
  bool Failed() const override { return failed.load(std::memory_order_acquire); }
  Status Failure() const override { return Error(collops::ERROR_ABORTED, "rank 9 gave up"); }
  std::string NameRank(int rank) const override {
    return "rank " + std::to_string(rank) + " (pid " + std::to_string(100 + rank) + ")";
  }
  std::atomic<bool> failed{false};
};

// Bytes of a message: they differ between messages, and between positions within 64 KiB.
inline std::vector<std::byte> Pattern(int64_t bytes, uint32_t seed) {
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  uint32_t state = seed * 2654435761U + 1;
  for (std::byte& byte : data) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

// Memory of one transfer: a pattern to send, or poison to receive into, with a guard behind it.
class Buffer {
 public:
  static constexpr size_t kGuard = 64;
  explicit Buffer(int64_t bytes) : data_(static_cast<size_t>(bytes) + kGuard, std::byte{0xa5}) {}
  explicit Buffer(const std::vector<std::byte>& data) : Buffer(static_cast<int64_t>(data.size())) {
    if (!data.empty()) std::memcpy(data_.data(), data.data(), data.size());
  }
  std::byte* data() { return data_.data(); }
  int64_t bytes() const { return static_cast<int64_t>(data_.size() - kGuard); }
  bool Holds(const std::vector<std::byte>& want) const {
    return want.size() + kGuard == data_.size() && GuardIsWhole() &&
           (want.empty() || std::memcmp(data_.data(), want.data(), want.size()) == 0);
  }
  bool Untouched() const {
    for (const std::byte byte : data_) {
      if (byte != std::byte{0xa5}) return false;
    }
    return true;
  }

 private:
  bool GuardIsWhole() const {
    for (size_t i = data_.size() - kGuard; i < data_.size(); ++i) {
      if (data_[i] != std::byte{0xa5}) return false;
    }
    return true;
  }
  std::vector<std::byte> data_;
};

inline uint64_t Digest(DType dtype, int64_t elements) {
  return (static_cast<uint64_t>(elements) * 64 + static_cast<uint64_t>(dtype)) *
             0x9e3779b97f4a7c15ULL +
         1;
}

inline Transfer Make(Transfer::Way way, int peer, int32_t tag, void* data, int64_t bytes,
                     DType dtype = DType::kUInt8) {
  Transfer transfer;
  transfer.way = way;
  transfer.peer = peer;
  transfer.tag = tag;
  transfer.dtype = dtype;
  transfer.elements = bytes / collops::SizeOf(dtype);
  transfer.digest = Digest(dtype, transfer.elements);
  transfer.data = data;
  transfer.bytes = bytes;
  return transfer;
}

inline Transfer Send(int peer, int32_t tag, Buffer* from, DType dtype = DType::kUInt8) {
  return Make(Transfer::kSend, peer, tag, from->data(), from->bytes(), dtype);
}
inline Transfer Recv(int peer, int32_t tag, Buffer* to, DType dtype = DType::kUInt8) {
  return Make(Transfer::kRecv, peer, tag, to->data(), to->bytes(), dtype);
}

// Polls the lanes one after the other until none moves. False if they never stop.
inline bool Settle(const std::vector<PairLane*>& lanes) {
  for (int round = 0; round < 100000; ++round) {
    bool moved = false;
    for (PairLane* lane : lanes) moved = lane->Poll() || moved;
    if (!moved) return true;
  }
  return false;
}

// Zeroed memory that ends at a page that nobody may touch, and begins behind one. Tests make
// thousands of hosts, and a sanitizer takes long for a new mapping of MiBs: mappings are used
// again, and until then nobody may touch them.
class GuardedMemory {
 public:
  // `bytes`: a multiple of 128, to which the memory is aligned.
  explicit GuardedMemory(int64_t bytes)
      : room_((static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage), first_(Take(room_)) {
    const bool usable = first_ != nullptr && mprotect(first_, room_, PROT_READ | PROT_WRITE) == 0 &&
                        madvise(first_, room_, MADV_DONTNEED) == 0;
    if (!usable) throw std::bad_alloc();
    base_ = first_ + room_ - bytes;
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() {
    mprotect(first_, room_, PROT_NONE);
    const std::lock_guard<std::mutex> lock(SpareMutex());
    Spare()[room_].push_back(first_);
  }

  std::byte* base() const { return base_; }

 private:
  static constexpr size_t kPage = 4096;

  static std::map<size_t, std::vector<std::byte*>>& Spare() {
    static std::map<size_t, std::vector<std::byte*>> spare;
    return spare;
  }
  static std::mutex& SpareMutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::byte* Take(size_t room) {
    const std::lock_guard<std::mutex> lock(SpareMutex());
    std::vector<std::byte*>& spare = Spare()[room];
    if (!spare.empty()) {
      std::byte* const first = spare.back();
      spare.pop_back();
      return first;
    }
    void* const whole =
        mmap(nullptr, room + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return whole == MAP_FAILED ? nullptr : static_cast<std::byte*>(whole) + kPage;
  }

  size_t room_;
  std::byte* first_;
  std::byte* base_;
};

// Windows of ranks in this process: every rank finds them once they are announced. Complete before
// threads start; rings are added later, each with its own number.
class Windows : public collops::shm::PairWindows {
 public:
  struct Range {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  static constexpr int kMost = 64;
  struct Shared {
    Range ranges[kMost];
    std::atomic<uint32_t> used{1};
    std::atomic<bool> announced[kMost] = {};
  };

  explicit Windows(Shared* shared) : shared_(shared) {}

  uint32_t Add(std::byte* data, int64_t bytes) {
    const uint32_t id = shared_->used.fetch_add(1);
    shared_->ranges[id] = {data, bytes};
    mine_.push_back(id);
    return id;
  }
  bool Find(const void* data, int64_t bytes, uint32_t* id, int64_t* offset) override {
    for (const uint32_t mine : mine_) {
      const Range& range = shared_->ranges[mine];
      const int64_t at = static_cast<const std::byte*>(data) - range.data;
      if (at < 0 || at > range.bytes || bytes > range.bytes - at) continue;
      *id = mine;
      *offset = at;
      return true;
    }
    return false;
  }
  Status Announce(uint32_t id, bool* told, uint64_t* mails) override {
    *told = !mailbox_full;
    if (*told) shared_->announced[id].store(true, std::memory_order_release);
    *mails = id;
    return Ok();
  }
  Status Locate(int peer, uint32_t id, int64_t offset, int64_t bytes, uint64_t mails,
                const std::byte** data) override {
    *data = nullptr;
    ++looks;
    if (mail_late || mails != id) return Ok();
    const bool known = id < kMost && shared_->announced[id].load(std::memory_order_acquire);
    const Range range = known ? shared_->ranges[id] : Range{};
    if (!known || offset < 0 || offset > range.bytes || bytes > range.bytes - offset) {
      return Error(collops::ERROR_PEER_LOST, "rank ", peer, " announced ", bytes,
                   " bytes in window ", id, " at ", offset, ", which it has not shared");
    }
    *data = range.data + offset;
    return Ok();
  }
  Status Make(int64_t bytes, collops::shm::RingWindow* window) override {
    COLLOPS_CHECK_ARG(!out_of_memory, collops::ERROR_OUT_OF_HOST_MEMORY, "no memory for a ring");
    const auto memory = std::make_shared<GuardedMemory>(bytes);
    window->data = memory->base();
    window->id = Add(memory->base(), bytes);
    window->keep = memory;
    mine_.pop_back();
    ++rings;
    return Ok();
  }

  bool mailbox_full = false;
  bool mail_late = false;
  bool out_of_memory = false;
  int looks = 0;
  int rings = 0;

 private:
  Shared* shared_;
  std::vector<uint32_t> mine_;
};

// Ranks of one host in this process, each with its wire and lane, on one memory.
class Host {
 public:
  explicit Host(int size) : Host(size, size) {}
  // `memory_size`: the number of ranks for which the memory is laid out, which may be larger.
  Host(int size, int memory_size) : memory_(collops::shm::ShmPairWire::Bytes(memory_size)) {
    for (int rank = 0; rank < size; ++rank) {
      windows.emplace_back(&shared_);
      groups.emplace_back();
      wires.push_back(std::make_unique<collops::shm::ShmPairWire>(
          base(), rank, memory_size, collops::shm::PeerBell{Count, this}, &windows.back()));
      lanes.push_back(
          std::make_unique<PairLane>(rank, memory_size, wires.back().get(), &groups.back()));
    }
  }
  PairLane& operator[](int rank) { return *lanes[static_cast<size_t>(rank)]; }
  std::byte* base() const { return memory_.base(); }
  bool Settle() {
    std::vector<PairLane*> all;
    for (const auto& lane : lanes) all.push_back(lane.get());
    return pairs::Settle(all);
  }

  std::deque<Windows> windows;
  std::deque<Group> groups;
  std::vector<std::unique_ptr<collops::shm::ShmPairWire>> wires;
  std::vector<std::unique_ptr<PairLane>> lanes;
  std::atomic<int> rings_of_bell{0};

 private:
  static void Count(void* host, int) { ++static_cast<Host*>(host)->rings_of_bell; }

  GuardedMemory memory_;
  Windows::Shared shared_;
};

}  // namespace pairs

#endif  // COLLOPS_TESTS_CPP_PAIR_KIT_H_
