// Communicators of a simulated libhccl, from its published signatures.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "communicator.h"
#include "report.h"
#include "request.h"
#include "sockets.h"
#include "stream.h"

using collops_sim::Communicator;
using collops_sim::CurrentDevice;
using collops_sim::Find;
using collops_sim::Forget;
using collops_sim::Keep;
using collops_sim::Report;
using collops_sim::ToldToFail;

namespace {

constexpr size_t kRootInfoBytes = 4108;

int Initialise(uint32_t size, const void* root_info, uint32_t rank, void** result) {
  if (CurrentDevice() < 0) return Report(collops_sim::kInternal, "no device is set");
  if (size == 0 || rank >= size) return Report(collops_sim::kBadParameter, "rank out of range");
  auto made = std::make_unique<Communicator>(static_cast<int>(rank), static_cast<int>(size),
                                             CurrentDevice());
  std::string error;
  if (!made->mesh().Connect(static_cast<const char*>(root_info), collops_sim::HostAddress(),
                            made->rank(), made->size(), &error)) {
    return Report(collops_sim::kTimeout, error);
  }
  made->set_name(static_cast<const char*>(root_info));
  *result = Keep(made.release());
  return collops_sim::kSuccess;
}

// Whether this thread's device is the one for which the communicator was made.
int CheckDevice(const Communicator& communicator) {
  if (CurrentDevice() == communicator.device()) return collops_sim::kSuccess;
  return Report(collops_sim::kInternal, "this thread's device is not the communicator's");
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
  Forget(communicator);
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
  return collops_sim::NumLive();
}

uint32_t HcclGetCommConfigCapability() {
  return 0;
}
int HcclSetConfig(int, int) {
  return collops_sim::kSuccess;
}

}  // extern "C"
