#pragma once

#include <dlfcn.h>

#include "core/status.h"

namespace collops::hccl {

// One library of CANN, and the first error in loading it. Never unloaded: CANN has threads of its
// own.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
    if (handle_ == nullptr) status_ = Missing(name);
  }

  template <typename Function>
  void Find(const char* symbol, Function* function) {
    FindIfThere(symbol, function);
    if (*function == nullptr && status_.ok()) status_ = Missing(symbol);
  }

  // Leaves the pointer null if the library is too old to have the function.
  template <typename Function>
  void FindIfThere(const char* symbol, Function* function) {
    if (handle_ == nullptr) return;
    *function = reinterpret_cast<Function>(dlsym(handle_, symbol));
  }

  const Status& status() const { return status_; }

 private:
  static Status Missing(const char* what) {
    const char* const reason = dlerror();
    return Error(ERROR_UNSUPPORTED, "backend hccl: ", reason == nullptr ? what : reason);
  }

  void* handle_;
  Status status_;
};

}  // namespace collops::hccl
