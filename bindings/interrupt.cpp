#include "collops/core/process/interrupt.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "gil.h"
#include "module.h"

namespace collops::bindings {
namespace {

// Python runs signal handlers in its main thread only.
bool InMainThread() {
  return syscall(SYS_gettid) == getpid();
}

// Runs Python's signal handlers. An exception that they raise stays pending until the wait has
// ended and ThrowIfError() finds it.
bool CheckSignals() {
  if (!InMainThread()) return false;
  const PyGILState_STATE state = NotUnwound([] { return PyGILState_Ensure(); });
  const bool interrupted = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return interrupted;
}

}  // namespace

void BindInterrupt(py::module_& module) {
  module.def(
      "watch_signals",
      [](bool on) {
        InterruptCheckSlot().store(on ? &CheckSignals : nullptr, std::memory_order_release);
      },
      py::arg("on"));
}

}  // namespace collops::bindings
