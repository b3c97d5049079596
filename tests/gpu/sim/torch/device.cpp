#include "torch/device.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "torch/libcuda.h"

namespace torch_on_sim {
namespace {

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

OnDevice::OnDevice(int device) : before_(CurrentDevice()) {
  Choose(device);
}

OnDevice::~OnDevice() {
  Choose(before_);
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
