// Shared by the tests of the pair lane: transfers with data that differs per message and position,
// and ranks of this process with their board, windows and wires.
#ifndef COLLOPS_TESTS_CPP_PAIR_KIT_H_
#define COLLOPS_TESTS_CPP_PAIR_KIT_H_

#include <sys/mman.h>

#include <algorithm>
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
#include "collops/comm/backends/shm/pair_wire.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/pairs/pair_lane.h"

namespace pairs {

using collops::DType;
using collops::Error;
using collops::Ok;
using collops::Status;
using collops::Transfer;

// Names a transfer of a lane; null: none.
struct TransferHandle {
  collops::OpenTransfer* open = nullptr;
};

// A lane that keeps the transfers which a test posts.
class PairLane : public collops::PairLane {
 public:
  using collops::PairLane::PairLane;
  PairLane(collops::PairWire* wire, collops::control::Endpoint* endpoint)
      : collops::PairLane({wire, endpoint->size()}, endpoint) {}

  TransferHandle Post(const Transfer& transfer) {
    transfers_.emplace_back().transfer = transfer;
    collops::PairLane::Post(&transfers_.back());
    return {&transfers_.back()};
  }
  static bool Done(TransferHandle handle) { return handle.open->done; }
  // The outcome of a transfer that is done.
  static Status Collect(TransferHandle handle, int* source = nullptr) {
    EXPECT_TRUE(Done(handle));
    if (source != nullptr) *source = handle.open->source;
    return handle.open->outcome;
  }

 private:
  std::deque<collops::OpenTransfer> transfers_;
};

// What ranks of this process know of each other after first contact; their pids are 100, 101, ...
class Group {
 public:
  // Only the first `living` ranks have mailboxes. `may_fail`: it has a board of its own; else all
  // groups of this size share one.
  explicit Group(int size, int living = 0, bool may_fail = false) {
    std::vector<collops::control::Peer> peers(static_cast<size_t>(size));
    std::vector<collops::control::UniqueFd> inboxes(static_cast<size_t>(size));
    for (size_t rank = 0; rank < peers.size(); ++rank) {
      peers[rank].pid = static_cast<pid_t>(100 + rank);
      if (static_cast<int>(rank) >= living) continue;
      collops::control::UniqueFd mailbox;
      EXPECT_TRUE(collops::control::SocketPair(&mailbox, &inboxes[rank]).ok());
      peers[rank].mailbox = collops::control::SharedFd(std::move(mailbox));
    }
    const collops::control::Segment board = may_fail ? NewBoard(size) : SharedBoard(size);
    for (int rank = 0; rank < size; ++rank) {
      collops::control::Group known;
      known.peers = peers;
      known.segment = board;
      known.inbox = std::move(inboxes[static_cast<size_t>(rank)]);
      endpoints_.emplace_back(std::move(known), rank, size);
    }
  }
  collops::control::Endpoint& operator[](int rank) { return endpoints_[static_cast<size_t>(rank)]; }

 private:
  static collops::control::Segment NewBoard(int size) {
    collops::control::Segment board;
    const int64_t bytes = collops::control::Board::Bytes(size);
    EXPECT_TRUE(collops::control::Segment::Create(bytes, &board).ok());
    return board;
  }
  static collops::control::Segment SharedBoard(int size) {
    static std::map<int, collops::control::Segment> boards;
    const auto found = boards.find(size);
    return found != boards.end() ? found->second : boards[size] = NewBoard(size);
  }

  std::deque<collops::control::Endpoint> endpoints_;
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
  explicit Buffer(int64_t bytes)
      : own_(static_cast<size_t>(bytes) + kGuard), data_(own_.data()), bytes_(bytes) {
    std::fill(own_.begin(), own_.end(), kPoison);
  }
  explicit Buffer(const std::vector<std::byte>& data) : Buffer(static_cast<int64_t>(data.size())) {
    std::copy(data.begin(), data.end(), data_);
  }
  // In a window, which has room for the guard.
  Buffer(std::shared_ptr<collops::Window> window, const std::vector<std::byte>& data)
      : window_(std::move(window)),
        data_(static_cast<std::byte*>(window_->data())),
        bytes_(static_cast<int64_t>(data.size())) {
    std::fill(data_, data_ + data.size() + kGuard, kPoison);
    std::copy(data.begin(), data.end(), data_);
  }
  Buffer(Buffer&&) = default;

  std::byte* data() { return data_; }
  int64_t bytes() const { return bytes_; }
  bool Holds(const std::vector<std::byte>& want) const {
    return static_cast<int64_t>(want.size()) == bytes_ && IsPoison(data_ + bytes_, kGuard) &&
           (want.empty() || std::memcmp(data_, want.data(), want.size()) == 0);
  }
  bool Untouched() const { return IsPoison(data_, static_cast<size_t>(bytes_) + kGuard); }

 private:
  static constexpr std::byte kPoison{0xa5};
  static bool IsPoison(const std::byte* data, size_t bytes) {
    return std::all_of(data, data + bytes, [](std::byte byte) { return byte == kPoison; });
  }

  std::vector<std::byte> own_;
  std::shared_ptr<collops::Window> window_;
  std::byte* data_;
  int64_t bytes_;
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

// Ranks of one host in this process, each with its windows, wire and lane, on one memory.
class Host {
 public:
  explicit Host(int size) : Host(size, size) {}
  // `memory_size`: the number of ranks for which the memory is laid out, which may be larger.
  Host(int size, int memory_size)
      : group(memory_size, size), memory_(collops::shm::ShmPairWire::Bytes(memory_size)) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.emplace_back(&group[rank], this);
      lanes.push_back(std::make_unique<PairLane>(&ranks_.back().wire, &group[rank]));
    }
  }
  PairLane& operator[](int rank) { return *lanes[static_cast<size_t>(rank)]; }
  std::byte* base() const { return memory_.base(); }
  bool Settle() {
    std::vector<PairLane*> all;
    for (const auto& lane : lanes) all.push_back(lane.get());
    return pairs::Settle(all);
  }

  // A window of a rank for a Buffer, which is not announced yet.
  std::shared_ptr<collops::Window> NewWindow(int rank, int64_t bytes) {
    std::shared_ptr<collops::Window> window;
    const int64_t room = bytes + int64_t{Buffer::kGuard};
    EXPECT_TRUE(ranks_[static_cast<size_t>(rank)].table->Allocate(room, &window).ok());
    return window;
  }
  // Windows, and rings of messages, that a rank has announced.
  uint64_t NumAnnounced(int rank) { return ranks_[static_cast<size_t>(rank)].mailbox.sent(); }

  Group group;
  std::vector<std::unique_ptr<PairLane>> lanes;
  std::atomic<int> rings_of_bell{0};

 private:
  struct Rank {
    Rank(collops::control::Endpoint* endpoint, Host* host)
        : table(
              std::make_shared<collops::shm::WindowTable>(collops::RankSet::All(endpoint->size()))),
          mailbox(endpoint, table.get()),
          wire(host->base(), endpoint, {Count, host}, &mailbox) {}

    std::shared_ptr<collops::shm::WindowTable> table;
    collops::shm::WindowMailbox mailbox;
    collops::shm::ShmPairWire wire;
  };
  static void Count(void* host, int) { ++static_cast<Host*>(host)->rings_of_bell; }

  GuardedMemory memory_;
  std::deque<Rank> ranks_;
};

}  // namespace pairs

#endif  // COLLOPS_TESTS_CPP_PAIR_KIT_H_
