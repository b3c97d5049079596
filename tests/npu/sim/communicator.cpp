#include "communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "arithmetic.h"
#include "memory.h"
#include "report.h"

namespace collops_sim {
namespace {

constexpr int kStreamError = 507011;  // what its stream says of a task that failed
constexpr uint64_t kMostElements = 0x7FFFFFFFF;

size_t At(int rank) {
  return static_cast<size_t>(rank);
}

// What the ranks compare. The numbers of a longer list would not fit; tests have few ranks.
struct Header {
  static constexpr size_t kMostRanks = 16;
  uint64_t number = 0;
  uint32_t kind = 0;
  uint32_t type = 0;
  uint32_t reduction = 0;
  uint64_t counts[kMostRanks] = {};
  uint64_t displs[kMostRanks] = {};
};

Header HeaderOf(const Collective& call, uint64_t number) {
  Header header;
  header.number = number;
  header.kind = call.kind;
  header.type = call.type;
  header.reduction = call.reduction;
  std::copy(call.counts.begin(), call.counts.end(), header.counts);
  std::copy(call.displs.begin(), call.displs.end(), header.displs);
  return header;
}

std::string Difference(const Header& mine, const Header& theirs) {
  if (mine.number != theirs.number) return "the number of the call";
  if (mine.kind != theirs.kind) return "the operator";
  if (mine.type != theirs.type) return "the data type";
  if (mine.reduction != theirs.reduction) return "the reduction";
  if (std::memcmp(mine.counts, theirs.counts, sizeof(mine.counts)) != 0) return "the counts";
  if (std::memcmp(mine.displs, theirs.displs, sizeof(mine.displs)) != 0) return "the displacements";
  return "";
}

// The elements up to the end of the last block.
uint64_t Extent(const Collective& call) {
  uint64_t extent = 0;
  for (size_t r = 0; r < call.counts.size(); ++r) {
    if (call.counts[r] > 0) extent = std::max(extent, call.displs[r] + call.counts[r]);
  }
  return extent;
}

// What HCCL documents for the simulated device, an Ascend910B.
bool IsTaken(const Collective& call) {
  switch (static_cast<int>(call.type)) {
    case kInt8:
    case kInt32:
    case kFloat16:
    case kFloat32:
    case kBFloat16:
      return true;
    case kInt16:
      return call.kind == Collective::kReduceScatterV;
    default:
      return false;
  }
}

}  // namespace

void Collective::Read(const void* all_counts, const void* all_displs, int size) {
  const auto* const first = static_cast<const uint64_t*>(all_counts);
  const auto* const second = static_cast<const uint64_t*>(all_displs);
  counts.assign(first, first + size);
  displs.assign(second, second + size);
  const char* const late = std::getenv("COLLOPS_SIM_LATE_COUNTS");
  if (late == nullptr || std::strcmp(late, "1") != 0) return;
  late_counts = first;
  late_displs = second;
}

bool Collective::IsUnchanged() const {
  return late_counts == nullptr || (std::equal(counts.begin(), counts.end(), late_counts) &&
                                    std::equal(displs.begin(), displs.end(), late_displs));
}

int Communicator::Check(const Collective& call, uint64_t own_count) const {
  const uint64_t size = SizeOf(static_cast<int>(call.type));
  if (!IsTaken(call)) return Report(kNotSupported, "this data type is not taken by this call");
  for (size_t r = 0; r < call.counts.size(); ++r) {
    if (call.counts[r] > kMostElements || call.displs[r] > kMostElements) {
      return Report(kBadParameter, "a count or displacement is too large");
    }
  }
  if (own_count != call.counts[At(rank_)]) {
    return Report(kBadParameter, "the own count is " + std::to_string(own_count) +
                                     " but the list says " +
                                     std::to_string(call.counts[At(rank_)]));
  }
  const bool gathers = call.kind == Collective::kAllGatherV;
  const uint64_t sent = (gathers ? own_count : Extent(call)) * size;
  const uint64_t received = (gathers ? Extent(call) : own_count) * size;
  if (sent > 0 && call.input == nullptr) return Report(kNullPointer, "sendBuf is null");
  if (received > 0 && call.output == nullptr) return Report(kNullPointer, "recvBuf is null");
  if (gathers && sent > 0 && call.input == call.output) {
    return Report(kBadParameter, "recvBuf is sendBuf");
  }
  if (sent > 0 && DeviceOf(call.input, sent) != device_) {
    return Report(kBadParameter, "sendBuf: the elements do not lie in this device's memory");
  }
  if (received > 0 && DeviceOf(call.output, received) != device_) {
    return Report(kBadParameter, "recvBuf: the elements do not lie in this device's memory");
  }
  return kSuccess;
}

void Communicator::Enqueue(Collective call, Stream* stream) {
  stream->Do([this, call = std::move(call)](Stream* where) {
    const uint64_t number = num_calls_++;
    where->Enqueue([this, call, number] { return Run(call, number); });
  });
}

int Communicator::Run(const Collective& call, uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  turn_.wait(lock, [&] { return next_ == number; });
  lock.unlock();
  const int code = error_ == 0 ? Exchange(call, number) : kStreamError;
  lock.lock();
  ++next_;
  turn_.notify_all();
  return code;
}

int Communicator::Exchange(const Collective& call, uint64_t number) {
  if (!call.IsUnchanged()) {
    mesh_.Close();
    return Fail(kInternal, "counts or displacements were freed or changed before the stream came");
  }
  std::thread sending([&] { SendAll(call, number); });
  const int code = ReceiveAll(call, number);
  if (code != 0) mesh_.Close();
  sending.join();
  return code;
}

// A peer that is gone is found by the receiving side.
void Communicator::SendAll(const Collective& call, uint64_t number) {
  const Header header = HeaderOf(call, number);
  const size_t size = SizeOf(static_cast<int>(call.type));
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const bool gathers = call.kind == Collective::kAllGatherV;
    const char* data = gathers ? call.input : call.input + call.displs[At(r)] * size;
    const size_t bytes = call.counts[At(gathers ? rank_ : r)] * size;
    if (!mesh_.Send(r, &header, sizeof(header)) || !mesh_.Send(r, data, bytes)) return;
  }
}

// From the next rank around to the own part at last: no order that a user may rely on.
int Communicator::ReceiveAll(const Collective& call, uint64_t number) {
  const Header mine = HeaderOf(call, number);
  const size_t size = SizeOf(static_cast<int>(call.type));
  const bool gathers = call.kind == Collective::kAllGatherV;
  std::vector<char> part;
  for (int step = 1; step <= size_; ++step) {
    const int r = (rank_ + step) % size_;
    const uint64_t count = call.counts[At(gathers ? r : rank_)];
    part.resize(count * size);
    Header theirs = mine;
    if (r != rank_ && !mesh_.Receive(r, &theirs, sizeof(theirs))) {
      return Fail(kRemote, "rank " + std::to_string(r) + " is gone or late");
    }
    const std::string difference = Difference(mine, theirs);
    if (!difference.empty()) {
      return Fail(kInternal, "rank " + std::to_string(r) + " differs in " + difference);
    }
    if (r == rank_ && count > 0) {
      std::memcpy(part.data(), gathers ? call.input : call.input + call.displs[At(r)] * size,
                  part.size());
    } else if (r != rank_ && !mesh_.Receive(r, part.data(), part.size())) {
      return Fail(kRemote, "rank " + std::to_string(r) + " is gone or late");
    }
    char* place = gathers ? call.output + call.displs[At(r)] * size : call.output;
    if (gathers || step == 1) {
      if (count > 0) std::memcpy(place, part.data(), part.size());
    } else {
      Combine(static_cast<int>(call.type), static_cast<int>(call.reduction), place, part.data(),
              count);
    }
  }
  return 0;
}

// A stream's thread has no caller who could ask for the text.
int Communicator::Fail(int code, const std::string& text) {
  std::fprintf(stderr, "simulated HCCL, rank %d of %d: %s\n", rank_, size_, text.c_str());
  error_ = code;
  return kStreamError;
}

}  // namespace collops_sim
