#include "driver/context.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "driver/capture.h"
#include "driver/memory.h"
#include "driver/stream.h"

namespace collops_sim {
namespace {

constexpr int kMostDevices = 16;

thread_local std::vector<Context*> stack;
thread_local const char* entered = "";
thread_local int callbacks = 0;

std::atomic<int> initialised_by{0};  // the process that called cuInit

Context* Contexts() {
  static auto* const contexts = [] {
    auto* const made = new Context[kMostDevices];
    for (int i = 0; i < kMostDevices; ++i) made[i].device = i;
    return made;
  }();
  return contexts;
}

std::string LibraryOf(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

// With the slash at its end.
std::string FolderOf(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1);
}

// Whether a call that may wait for kernels counts as a mistake while one waits for its peers. It
// does, unless COLLOPS_SIM_WAITS_OF names a library and the call comes from elsewhere: a program
// may wait for its own ranks' kernels, but a library that does so inside of a call may keep the
// peers from coming.
bool CountsAsWait() {
  const char* const named = std::getenv("COLLOPS_SIM_WAITS_OF");
  if (named == nullptr) return true;
  // That of the simulated libraries, which call each other.
  const std::string own = FolderOf(LibraryOf(reinterpret_cast<const void*>(&NumDevices)));
  void* frames[16];
  const int count = backtrace(frames, 16);
  for (int i = 0; i < count; ++i) {
    const std::string caller = LibraryOf(frames[i]);
    const std::string folder = FolderOf(caller);
    if (folder != own) return caller.compare(folder.size(), std::strlen(named), named) == 0;
  }
  return true;
}

struct sigaction before_ours;

void Write(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);
}

// The fault occurs again where this returns, and what was set before takes it.
void Explain(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (IsDeviceAddress(address)) {
    Write("simulated CUDA: host code touched device memory\n");
  } else if (IsHostView(address)) {
    Write("simulated CUDA: a kernel touched device memory that is not there or not accessible\n");
  }
  sigaction(SIGSEGV, &before_ours, nullptr);
}

// From now on a segmentation fault at an address of a simulated GPU says so before it ends the
// process: host code has touched device memory, or a kernel memory that is not mapped for it.
void ExplainFaults() {
  struct sigaction action = {};
  action.sa_sigaction = Explain;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before_ours);
}

}  // namespace

int NumDevices() {
  const char* text = std::getenv("COLLOPS_SIM_GPUS");
  const int wished = text == nullptr ? 8 : std::atoi(text);
  return wished < kMostDevices ? wished : kMostDevices;
}

Context* PrimaryOf(int device) {
  return device >= 0 && device < NumDevices() ? &Contexts()[device] : nullptr;
}

Context* FindContext(void* handle) {
  for (int i = 0; i < NumDevices(); ++i) {
    if (handle == &Contexts()[i] && Contexts()[i].retained > 0) return &Contexts()[i];
  }
  return nullptr;
}

Context* CurrentContext() {
  return stack.empty() ? nullptr : stack.back();
}

bool CanAccessPeer(int device, int peer) {
  const char* text = std::getenv("COLLOPS_SIM_NO_PEERS");
  if (device == peer || text == nullptr) return device != peer;
  const std::string apart = text;
  if (apart == "1") return false;
  const auto has = [&](int a, int b) {
    const std::string pair = std::to_string(a) + "-" + std::to_string(b);
    return ("," + apart + ",").find("," + pair + ",") != std::string::npos;
  };
  return !has(device, peer) && !has(peer, device);
}

CallbackScope::CallbackScope() {
  ++callbacks;
}
CallbackScope::~CallbackScope() {
  --callbacks;
}

void LoadOnce(Context* context, const std::string& kernel) {
  const std::lock_guard<std::mutex> lock(context->loading);
  if (!context->loaded.insert(kernel).second) return;
  for (Stream* const stream : StreamsOf(context)) {
    if (stream->FinishWhatRuns(TimeoutS())) continue;
    Mistake("a module is loaded while a kernel runs that does not end");
  }
}

const char* EnteredFunction() {
  return entered;
}

Result Enter(const char* function, unsigned needs) {
  entered = function;
  const std::string name = function;
  if (callbacks > 0) {
    Mistake(name + " in a callback of CUDA, which may not call CUDA");
    return kNotPermitted;
  }
  if (const int planned = PlannedFailure(name)) return static_cast<Result>(planned);
  if ((needs & kNeedsInit) != 0 && initialised_by != getpid()) {
    return Refuse(kNotInitialized, initialised_by == 0
                                       ? name + " before cuInit"
                                       : name + " in a child of the process that called cuInit");
  }
  if ((needs & kNeedsContext) == 0) return Result::kSuccess;
  Context* context = CurrentContext();
  if (context == nullptr) {
    return Refuse(kInvalidContext, name + " without a current context");
  }
  {
    const std::lock_guard<std::mutex> loaded(context->loading);
  }
  if (context->error != 0) {
    return Refuse(static_cast<Result>(context->error.load()), "the context is lost");
  }
  if ((needs & kIsUnsafe) != 0) {
    const Result forbidden = CaptureForbids(name);
    if (forbidden != Result::kSuccess) return forbidden;
  }
  if ((needs & kMayWait) != 0 && context->waiting > 0 && CountsAsWait()) {
    Mistake(name + " while a kernel waits for a signal: both may wait forever");
  }
  if (IsBlocked(name)) {
    for (Stream* const stream : StreamsOf(context)) static_cast<void>(Synchronize(stream));
  }
  return Result::kSuccess;
}

}  // namespace collops_sim

using collops::cuda::Device;
using collops_sim::Context;
using collops_sim::Enter;
using collops_sim::kInvalidContext;
using collops_sim::kInvalidValue;
using collops_sim::kNotInitialized;
using collops_sim::Refuse;
using collops_sim::Result;
using collops_sim::stack;

extern "C" {

Result cuInit(unsigned int flags) {
  const Result result = Enter("cuInit", 0);
  if (result != Result::kSuccess) return result;
  if (flags != 0) return Refuse(kInvalidValue, "cuInit takes no flags");
  if (collops_sim::NumDevices() == 0) return collops_sim::kNoGpu;
  const int before = collops_sim::initialised_by;
  if (before != 0 && before != getpid()) {
    return Refuse(kNotInitialized, "cuInit in a child of the process that called it");
  }
  if (before == 0) {
    collops_sim::ReserveAddresses();
    collops_sim::ExplainFaults();
  }
  collops_sim::initialised_by = getpid();
  return Result::kSuccess;
}

Result cuDevicePrimaryCtxRetain(void** context, Device device) {
  const Result result = Enter("cuDevicePrimaryCtxRetain", collops_sim::kNeedsInit);
  if (result != Result::kSuccess) return result;
  Context* found = collops_sim::PrimaryOf(device);
  if (found == nullptr) return Result::kInvalidDevice;
  ++found->retained;
  *context = found;
  return Result::kSuccess;
}
// For torch, which asks before it uses a device unasked.
Result cuDevicePrimaryCtxGetState(Device device, unsigned int* flags, int* is_active) {
  const Result result = Enter("cuDevicePrimaryCtxGetState", collops_sim::kNeedsInit);
  if (result != Result::kSuccess) return result;
  Context* found = collops_sim::PrimaryOf(device);
  if (found == nullptr) return Result::kInvalidDevice;
  *flags = 0;
  *is_active = found->retained > 0 ? 1 : 0;
  return Result::kSuccess;
}

Result cuCtxPushCurrent_v2(void* context) {
  const Result result = Enter("cuCtxPushCurrent_v2", collops_sim::kNeedsInit);
  if (result != Result::kSuccess) return result;
  Context* found = collops_sim::FindContext(context);
  if (found == nullptr) return Refuse(kInvalidContext, "there is no such context");
  stack.push_back(found);
  return Result::kSuccess;
}
Result cuCtxPopCurrent_v2(void** context) {
  const Result result = Enter("cuCtxPopCurrent_v2", collops_sim::kNeedsInit);
  if (result != Result::kSuccess) return result;
  if (stack.empty()) return Refuse(kInvalidContext, "this thread has no current context");
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return Result::kSuccess;
}
Result cuCtxSetCurrent(void* context) {
  const Result result = Enter("cuCtxSetCurrent", collops_sim::kNeedsInit);
  if (result != Result::kSuccess) return result;
  Context* found = context == nullptr ? nullptr : collops_sim::FindContext(context);
  if (context != nullptr && found == nullptr) return kInvalidContext;
  if (!stack.empty()) stack.pop_back();
  if (found != nullptr) stack.push_back(found);
  return Result::kSuccess;
}
Result cuCtxGetCurrent(void** context) {
  const Result result = Enter("cuCtxGetCurrent", collops_sim::kNeedsInit);
  if (result == Result::kSuccess) *context = collops_sim::CurrentContext();
  return result;
}
Result cuCtxGetDevice(Device* device) {
  const Result result = Enter("cuCtxGetDevice", collops_sim::kNeedsInit);
  if (result != Result::kSuccess) return result;
  Context* current = collops_sim::CurrentContext();
  if (current == nullptr) return Refuse(kInvalidContext, "there is no current context");
  *device = current->device;
  return Result::kSuccess;
}

Result cuCtxEnablePeerAccess(void* peer, unsigned int flags) {
  const Result result =
      Enter("cuCtxEnablePeerAccess", collops_sim::kNeedsInit | collops_sim::kNeedsContext);
  if (result != Result::kSuccess) return result;
  Context* other = collops_sim::FindContext(peer);
  Context* own = collops_sim::CurrentContext();
  if (other == nullptr || other == own) return kInvalidContext;
  if (flags != 0) return kInvalidValue;
  if (!collops_sim::CanAccessPeer(own->device, other->device)) {
    return collops_sim::kPeerAccessUnsupported;
  }
  const std::lock_guard<std::mutex> lock(own->peers_mutex);
  return own->peers.insert(other->device).second ? Result::kSuccess
                                                 : Result::kPeerAccessAlreadyEnabled;
}

}  // extern "C"
