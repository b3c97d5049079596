#include "gil.h"

#include <unistd.h>

namespace collops::bindings {

void SleepForGood() {
  while (true) pause();
}

// Not inline: a destructor is noexcept, and what is unwound must not get that far.
[[gnu::noinline]] void ReleasedGil::Take(PyThreadState* state) {
  NotUnwound([&] { PyEval_RestoreThread(state); });
}

HeldGil::HeldGil() {
  NotUnwound([&] { held_.emplace(); });
}

}  // namespace collops::bindings
