#include "request.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <sstream>

#include "acl.h"
#include "arithmetic.h"
#include "sim/combine.h"

namespace collops_sim {
namespace {

constexpr uint64_t kMostElements = 0x7FFFFFFFF;

std::mutex live_mutex;
std::set<Communicator*>& Live() {
  static auto* const live = new std::set<Communicator*>;
  return *live;
}

// Of the first generation, which has no V calls; "Ascend910B" alone is one of its names.
bool IsFirst910(const std::string& soc) {
  const auto begins = [&](const std::string& with) { return soc.rfind(with, 0) == 0; };
  return begins("Ascend910") && !begins("Ascend910_") &&
         (!begins("Ascend910B") || soc == "Ascend910B");
}

bool IsMissing(const std::string& function) {
  const char* const without = std::getenv("COLLOPS_SIM_WITHOUT");
  std::istringstream names(without == nullptr ? "" : without);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == function) return true;
  }
  return (function == "HcclAllGatherV" || function == "HcclReduceScatterV") &&
         IsFirst910(SocName());
}

}  // namespace

int MayRun(const char* function) {
  if (const int code = PlannedFailure(function)) return code;
  if (!IsMissing(function)) return kSuccess;
  return collops_sim::Refuse(kNotSupported,
                             std::string(function) + " is not supported on " + SocName());
}

Communicator* Find(void* handle) {
  const std::lock_guard<std::mutex> lock(live_mutex);
  auto* communicator = static_cast<Communicator*>(handle);
  return Live().count(communicator) != 0 ? communicator : nullptr;
}

Communicator* Keep(Communicator* communicator) {
  const std::lock_guard<std::mutex> lock(live_mutex);
  return *Live().insert(communicator).first;
}

bool Forget(Communicator* communicator) {
  const std::lock_guard<std::mutex> lock(live_mutex);
  return Live().erase(communicator) != 0;
}

int NumLive() {
  const std::lock_guard<std::mutex> lock(live_mutex);
  return static_cast<int>(Live().size());
}

Communicator* FindWhere(const std::function<bool(const Communicator&)>& matches) {
  const std::lock_guard<std::mutex> lock(live_mutex);
  for (Communicator* communicator : Live()) {
    if (matches(*communicator)) return communicator;
  }
  return nullptr;
}

int CheckDevice(const Communicator& communicator) {
  if (CurrentDevice() == communicator.device()) return kSuccess;
  return collops_sim::Refuse(kInternal, "this thread's device is not the communicator's");
}

std::vector<Block> BlocksOf(void* data, size_t element, const std::vector<uint64_t>& counts,
                            const std::vector<uint64_t>& displs) {
  std::vector<Block> blocks;
  for (size_t r = 0; r < counts.size(); ++r) {
    blocks.push_back({static_cast<char*>(data) + displs[r] * element, counts[r]});
  }
  return blocks;
}

uint64_t ExtentOf(const std::vector<uint64_t>& counts, const std::vector<uint64_t>& displs) {
  uint64_t extent = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] > 0) extent = std::max(extent, displs[r] + counts[r]);
  }
  return extent;
}

Request::Request(const char* function, void* comm, void* stream)
    : function_(function),
      communicator_(Find(comm)),
      stream_(stream == nullptr ? nullptr : FindStream(stream)),
      code_(MayRun(function)) {
  if (code_ != 0) return;
  if (communicator_ == nullptr || stream_ == nullptr) {
    Refuse(kNullPointer, "the communicator or the stream is none of ours");
  } else if (CurrentDevice() != communicator_->device()) {
    Refuse(kInternal, "this thread's device is not the communicator's");
  } else if (stream_->device() != communicator_->device()) {
    Refuse(kBadParameter, "the stream is another device's");
  }
}

bool Request::Refuse(int code, const std::string& text) {
  if (code_ == 0) code_ = collops_sim::Refuse(code, std::string(function_) + ": " + text);
  return false;
}

bool Request::NeedCopied(int type) {
  if (code_ != 0) return false;
  return SizeOf(type) != 0 || Refuse(kNotSupported, "this data type is not taken by this call");
}

bool Request::NeedReduced(int type, int reduction) {
  if (code_ != 0) return false;
  const auto types = {kInt8, kInt16, kInt32, kInt64, kFloat16, kFloat32, kBFloat16};
  if (std::find(types.begin(), types.end(), type) == types.end()) {
    return Refuse(kNotSupported, "this data type is not taken by this call");
  }
  if (reduction < 0 || reduction >= kNumReductions) {
    return Refuse(kBadParameter, "there is no such reduction");
  }
  if (reduction == kProduct && (type == kInt16 || type == kBFloat16)) {
    return Refuse(kNotSupported, "no product of this data type on this device");
  }
  return true;
}

bool Request::NeedCount(uint64_t count) {
  if (code_ != 0) return false;
  return count <= kMostElements || Refuse(kBadParameter, "a count or displacement is too large");
}

bool Request::NeedCounts(const std::vector<uint64_t>& counts) {
  for (const uint64_t count : counts) {
    if (!NeedCount(count)) return false;
  }
  return code_ == 0;
}

bool Request::NeedList(const void* list) {
  if (code_ != 0) return false;
  return list != nullptr || Refuse(kNullPointer, "a list is null");
}

bool Request::NeedRank(uint32_t rank) {
  if (code_ != 0) return false;
  return rank < size() || Refuse(kBadParameter, "there is no rank " + std::to_string(rank));
}

bool Request::NeedMemory(const char* name, Span span, int type) {
  const uint64_t bytes = span.count * SizeOf(type);
  if (code_ != 0) return false;
  if (bytes == 0) return true;
  if (span.data == nullptr) return Refuse(kNullPointer, std::string(name) + " is null");
  if (DeviceOf(span.data, bytes) == communicator_->device()) return true;
  return Refuse(kBadParameter,
                std::string(name) + ": the elements do not lie in this device's memory");
}

bool Request::NeedApart(Span input, Span output, int type, const void* place) {
  if (code_ != 0) return false;
  if (input.count == 0 || output.count == 0) return true;
  if (input.data == nullptr || output.data == nullptr) return true;
  const auto* const in = static_cast<const char*>(input.data);
  const auto* const out = static_cast<const char*>(output.data);
  if (in == place) return true;
  if (in == out) return Refuse(kBadParameter, "recvBuf is sendBuf");
  const bool apart =
      in + input.count * SizeOf(type) <= out || out + output.count * SizeOf(type) <= in;
  return apart || Refuse(kBadParameter, "recvBuf overlaps sendBuf");
}

// HCCL's documents forbid nothing of HcclAllGather, and its published source compares no addresses
// there, as it does in other calls: FSDP2 of torch gathers so on NPUs.
int Request::Start(Call call, Span input, Span output) {
  const int type = static_cast<int>(call.type);
  const void* place = nullptr;
  if (call.kind == Call::kAllReduce || call.kind == Call::kReduce) place = output.data;
  if (call.kind == Call::kAllGather) place = call.received[rank()].data;
  if (!NeedMemory("sendBuf", input, type) || !NeedMemory("recvBuf", output, type) ||
      !NeedApart(input, output, type, place)) {
    return code_;
  }
  if (input.count > 0) call.memory.push_back(input.data);
  if (output.count > 0) call.memory.push_back(output.data);
  if (const int code = communicator_->Link(call)) return code;
  communicator_->Enqueue(std::move(call), stream_);
  return kSuccess;
}

}  // namespace collops_sim
