#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <optional>
#include <type_traits>

namespace collops::bindings {

// Puts the calling thread to sleep until its process ends.
[[noreturn]] void SleepForGood();

// Runs work that may take the GIL. When the interpreter ends, Python up to 3.13 ends any other
// thread that takes the GIL with pthread_exit(). Its unwinding would destroy Python objects without
// the GIL and abort the process; so the thread sleeps, as it does from Python 3.14 on.
// Known by an unwinding without an exception: libc++ has no abi::__forced_unwind to catch.
template <typename Work>
auto NotUnwound(const Work& work) {
  struct Watch {
    int exceptions = std::uncaught_exceptions();
    bool has_returned = false;
    ~Watch() {
      if (!has_returned && std::uncaught_exceptions() == exceptions) SleepForGood();
    }
  } watch;
  if constexpr (std::is_void_v<decltype(work())>) {
    work();
    watch.has_returned = true;
  } else {
    auto result = work();
    watch.has_returned = true;
    return result;
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
