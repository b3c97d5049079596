#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>

#include <optional>

namespace collops::bindings {

// Lets the calling thread sleep until its process has ended.
[[noreturn]] void SleepForGood();

// Runs what may take the GIL. Once the interpreter ends, Python up to 3.13 ends any other thread
// that does so, by pthread_exit(). Its unwinding would destroy Python objects without the GIL, and
// abort the process at the first destructor; so the thread sleeps instead, as from Python 3.14 on.
template <typename Work>
auto NotUnwound(const Work& work) {
  try {
    return work();
  } catch (abi::__forced_unwind&) {
    SleepForGood();
  }
}

// Lets the GIL go while it lives. The thread holds it.
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

// Holds the GIL while it lives, in whatever thread.
class HeldGil {
 public:
  HeldGil();
  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;

 private:
  std::optional<pybind11::gil_scoped_acquire> held_;
};

}  // namespace collops::bindings
