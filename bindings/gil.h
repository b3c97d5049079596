#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>

#include <optional>

namespace collops::bindings {

// Puts the calling thread to sleep until its process ends.
[[noreturn]] void SleepForGood();

// Runs work that may take the GIL. When the interpreter ends, Python up to 3.13 ends any other
// thread that takes the GIL with pthread_exit(). Its unwinding would destroy Python objects without
// the GIL and abort the process; so the thread sleeps, as it does from Python 3.14 on.
template <typename Work>
auto NotUnwound(const Work& work) {
  try {
    return work();
  } catch (abi::__forced_unwind&) {
    SleepForGood();
  }
}

// Releases the GIL while it lives. The thread must have the GIL.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  ~ReleasedGil() { Take(state_); }

 private:
  static void Take(PyThreadState* state);

  PyThreadState* state_;
};

// Takes the GIL while it lives, in any thread.
class HeldGil {
 public:
  HeldGil();
  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;

 private:
  std::optional<pybind11::gil_scoped_acquire> held_;
};

}  // namespace collops::bindings
