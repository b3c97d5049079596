#include "gil.h"

#include <unistd.h>

namespace collops::bindings {

void SleepForGood() {
  while (true) pause();
}

// Not inline: an exception must not unwind into a destructor of the caller, which is noexcept.
[[gnu::noinline]] void ReleasedGil::Take(PyThreadState* state) {
  NotUnwound([&] { PyEval_RestoreThread(state); });
}

HeldGil::HeldGil() {
  NotUnwound([&] { held_.emplace(); });
}

}  // namespace collops::bindings
