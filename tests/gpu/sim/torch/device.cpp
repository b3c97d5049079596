#include "torch/device.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "torch/libcuda.h"

namespace torch_on_sim {
namespace {

thread_local int chosen = 0;
thread_local std::array<c10::StreamId, kMostDevices> current_streams{};

void* ContextOf(int device) {
  Check(cuInit(0), "cuInit");
  void* context = nullptr;
  Check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

// A device writes into whatever memory it is given: also into a tensor made in inference mode.
void Run(void* work) {
  const c10::InferenceMode mode;
  (*static_cast<std::function<void()>*>(work))();
}

void RunOnce(void* work) {
  Run(work);
  delete static_cast<std::function<void()>*>(work);
}

}  // namespace

void Check(int code, const char* call) {
  if (code == 0) return;
  const char* const text = SimLastText();
  TORCH_CHECK(false, call, " answered ", code, ": ", text == nullptr ? "" : text);
}

int NumDevices() {
  Check(cuInit(0), "cuInit");
  int count = 0;
  Check(cuDeviceGetCount(&count), "cuDeviceGetCount");
  return std::min(count, kMostDevices);
}

int CurrentDevice() {
  return chosen;
}

void Choose(int device) {
  TORCH_CHECK(device >= 0 && device < kMostDevices, "there is no device ", device);
  Check(cuCtxSetCurrent(ContextOf(device)), "cuCtxSetCurrent");
  chosen = device;
}

OnDevice::OnDevice(int device) : before_(chosen) {
  Choose(device);
}

OnDevice::~OnDevice() {
  Choose(before_);
}

c10::Stream CurrentStream(int device) {
  return StreamOf(device, current_streams.at(static_cast<size_t>(device)));
}

void SetCurrentStream(const c10::Stream& stream) {
  current_streams.at(static_cast<size_t>(stream.device_index())) = stream.id();
}

c10::Stream NewStream(int device) {
  const OnDevice scope(device);
  void* made = nullptr;
  Check(cuStreamCreate(&made, kNonBlocking), "cuStreamCreate");
  return StreamOf(device, static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(made)));
}

void* HandleOf(const c10::Stream& stream) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
}

bool IsCaptured(const c10::Stream& stream) {
  const OnDevice scope(stream.device_index());
  int status = 0;
  Check(cuStreamIsCapturing(HandleOf(stream), &status), "cuStreamIsCapturing");
  return status != 0;
}

void Launch(const c10::Stream& stream, std::function<void()> work) {
  // What a graph may replay is never deleted.
  const bool stays = IsCaptured(stream);
  const OnDevice scope(stream.device_index());
  auto* const kept = new std::function<void()>(std::move(work));
  Check(cuLaunchHostFunc(HandleOf(stream), stays ? Run : RunOnce, kept), "cuLaunchHostFunc");
}

void Synchronize(const c10::Stream& stream) {
  const OnDevice scope(stream.device_index());
  Check(cuStreamSynchronize(HandleOf(stream)), "cuStreamSynchronize");
}

}  // namespace torch_on_sim
