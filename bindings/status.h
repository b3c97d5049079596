#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "collops/core/status.h"

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

// Something that is destroyed with the GIL, by whatever thread.
template <typename T>
std::shared_ptr<T> DestroyedWithGil(std::unique_ptr<T> owned) {
  return std::shared_ptr<T>(owned.release(), [](T* object) {
    if (Py_IsInitialized() == 0) return;  // too late to give anything back
    const HeldGil held;
    NotUnwound([&] { delete object; });
  });
}

// Raises collops.Error unless `status` is Ok. A pending Python exception takes precedence: it is
// the KeyboardInterrupt that ended the wait.
void ThrowIfError(const Status& status);

// Raises the error of these words.
template <typename... Parts>
[[noreturn]] void Throw(ErrorCode code, const Parts&... parts) {
  ThrowIfError(Error(code, parts...));
  throw pybind11::error_already_set();  // not reached
}

// What the other ranks hear of a Python error: its code and text.
Status StatusOf(const pybind11::error_already_set& error);

// "ValueError: message", without the stack that what() adds.
std::string ToString(const pybind11::error_already_set& error);

// Runs a call that may wait for other ranks with the GIL released, then raises its error.
template <typename Call>
void RunWithoutGil(const Call& call) {
  Status status;
  {
    const ReleasedGil released;
    status = call();
  }
  ThrowIfError(status);
}

}  // namespace collops::bindings
