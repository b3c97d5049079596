// A simulated libhccl, from its published signatures: communicators, and the two V collectives
// between processes. What torch_npu needs besides is not supported, and says so.
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "arithmetic.h"
#include "communicator.h"
#include "report.h"
#include "stream.h"

using collops_sim::Collective;
using collops_sim::Communicator;
using collops_sim::CurrentDevice;
using collops_sim::FindStream;
using collops_sim::Report;
using collops_sim::Stream;
using collops_sim::ToldToFail;

namespace {

constexpr size_t kRootInfoBytes = 4108;
constexpr int kNumReductions = 4;

std::mutex live_mutex;
std::set<Communicator*>& Live() {
  static auto* const live = new std::set<Communicator*>;
  return *live;
}

Communicator* Find(void* handle) {
  const std::lock_guard<std::mutex> lock(live_mutex);
  auto* communicator = static_cast<Communicator*>(handle);
  return Live().count(communicator) != 0 ? communicator : nullptr;
}

int Initialise(uint32_t size, const void* root_info, uint32_t rank, void** result) {
  if (CurrentDevice() < 0) return Report(collops_sim::kInternal, "no device is set");
  if (size == 0 || rank >= size) return Report(collops_sim::kBadParameter, "rank out of range");
  auto made = std::make_unique<Communicator>(static_cast<int>(rank), static_cast<int>(size),
                                             CurrentDevice());
  std::string error;
  if (!made->mesh().Connect(static_cast<const char*>(root_info), made->rank(), made->size(),
                            &error)) {
    return Report(collops_sim::kTimeout, error);
  }
  made->set_name(static_cast<const char*>(root_info));
  const std::lock_guard<std::mutex> lock(live_mutex);
  *result = *Live().insert(made.release()).first;
  return collops_sim::kSuccess;
}

// Whether this thread's device is the one for which the communicator was made.
int CheckDevice(const Communicator& communicator) {
  if (CurrentDevice() == communicator.device()) return collops_sim::kSuccess;
  return Report(collops_sim::kInternal, "this thread's device is not the communicator's");
}

int Start(Collective call, uint64_t own_count, void* comm, void* stream_handle) {
  Communicator* communicator = Find(comm);
  Stream* stream = stream_handle == nullptr ? nullptr : FindStream(stream_handle);
  if (communicator == nullptr || stream == nullptr) {
    return Report(collops_sim::kNullPointer, "the communicator or the stream is none of ours");
  }
  if (const int code = CheckDevice(*communicator)) return code;
  if (stream->device() != communicator->device()) {
    return Report(collops_sim::kBadParameter, "the stream is another device's");
  }
  if (const int code = communicator->Check(call, own_count)) return code;
  communicator->Enqueue(std::move(call), stream);
  return collops_sim::kSuccess;
}

Collective Describe(Collective::Kind kind, int type, void* input, void* output) {
  Collective call;
  call.kind = kind;
  call.type = static_cast<uint32_t>(type);
  call.input = static_cast<const char*>(input);
  call.output = static_cast<char*>(output);
  return call;
}

int NotHere() {
  return Report(collops_sim::kNotSupported, "this call is not simulated");
}

}  // namespace

extern "C" {

int HcclGetRootInfo(void* root_info) {
  if (const int code = ToldToFail("HcclGetRootInfo")) return code;
  if (CurrentDevice() < 0) return Report(collops_sim::kInternal, "no device is set");
  const std::string name = collops_sim::OpenRoot();
  std::memset(root_info, 0, kRootInfoBytes);
  std::memcpy(root_info, name.data(), name.size());
  return collops_sim::kSuccess;
}
int HcclCommInitRootInfo(uint32_t size, const void* root_info, uint32_t rank, void** comm) {
  if (const int code = ToldToFail("HcclCommInitRootInfo")) return code;
  return Initialise(size, root_info, rank, comm);
}
int HcclCommInitRootInfoConfig(uint32_t size, const void* root_info, uint32_t rank, const void*,
                               void** comm) {
  return Initialise(size, root_info, rank, comm);
}
// Leaves the communicator's memory to what its streams may still do.
int HcclCommDestroy(void* comm) {
  if (const int code = ToldToFail("HcclCommDestroy")) return code;
  Communicator* communicator = Find(comm);
  if (communicator == nullptr) return Report(collops_sim::kBadParameter, "destroyed twice");
  if (const int code = CheckDevice(*communicator)) return code;
  const std::lock_guard<std::mutex> lock(live_mutex);
  Live().erase(communicator);
  communicator->mesh().Close();
  return collops_sim::kSuccess;
}
int HcclGetRankSize(void* comm, uint32_t* size) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return collops_sim::kBadParameter;
  *size = static_cast<uint32_t>(communicator->size());
  return collops_sim::kSuccess;
}
int HcclGetRankId(void* comm, uint32_t* rank) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return collops_sim::kBadParameter;
  *rank = static_cast<uint32_t>(communicator->rank());
  return collops_sim::kSuccess;
}
int HcclGetCommName(void* comm, char* name) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return collops_sim::kBadParameter;
  std::strcpy(name, communicator->name().c_str());
  return collops_sim::kSuccess;
}
int HcclGetCommAsyncError(void* comm, int* error) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return collops_sim::kBadParameter;
  *error = communicator->error();
  return collops_sim::kSuccess;
}
// For tests: how many communicators this process has.
int SimLiveCommunicators() {
  const std::lock_guard<std::mutex> lock(live_mutex);
  return static_cast<int>(Live().size());
}

uint32_t HcclGetCommConfigCapability() {
  return 0;
}
int HcclSetConfig(int, int) {
  return collops_sim::kSuccess;
}

int HcclAllGatherV(void* send, uint64_t send_count, void* receive, const void* counts,
                   const void* displs, int type, void* comm, void* stream) {
  if (const int code = ToldToFail("HcclAllGatherV")) return code;
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr || counts == nullptr || displs == nullptr) {
    return Report(collops_sim::kNullPointer,
                  "HcclAllGatherV: a pointer is null or no communicator");
  }
  Collective call = Describe(Collective::kAllGatherV, type, send, receive);
  call.Read(counts, displs, communicator->size());
  return Start(std::move(call), send_count, comm, stream);
}

int HcclReduceScatterV(void* send, const void* counts, const void* displs, void* receive,
                       uint64_t receive_count, int type, int reduction, void* comm, void* stream) {
  if (const int code = ToldToFail("HcclReduceScatterV")) return code;
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr || counts == nullptr || displs == nullptr) {
    return Report(collops_sim::kNullPointer,
                  "HcclReduceScatterV: a pointer is null or no communicator");
  }
  if (reduction < 0 || reduction >= kNumReductions) {
    return Report(collops_sim::kBadParameter, "HcclReduceScatterV: no such reduction");
  }
  if (reduction == collops_sim::kProduct) {
    return Report(collops_sim::kNotSupported, "HcclReduceScatterV: no product on this device");
  }
  Collective call = Describe(Collective::kReduceScatterV, type, send, receive);
  call.reduction = static_cast<uint32_t>(reduction);
  call.Read(counts, displs, communicator->size());
  return Start(std::move(call), receive_count, comm, stream);
}

int HcclAllGather(void*, void*, uint64_t, int, void*, void*) {
  return NotHere();
}
int HcclAllReduce(void*, void*, uint64_t, int, int, void*, void*) {
  return NotHere();
}
int HcclBarrier(void*, void*) {
  return NotHere();
}
int HcclBroadcast(void*, uint64_t, int, uint32_t, void*, void*) {
  return NotHere();
}
int HcclRecv(void*, uint64_t, int, uint32_t, void*, void*) {
  return NotHere();
}
int HcclReduceScatter(void*, void*, uint64_t, int, int, void*, void*) {
  return NotHere();
}
int HcclSend(void*, uint64_t, int, uint32_t, void*, void*) {
  return NotHere();
}

}  // extern "C"
