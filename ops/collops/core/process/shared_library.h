#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <mutex>
#include <string>

#include "collops/core/status.h"

namespace collops {

// A vendor's library that is opened at run time, and the first error in loading it. Never unloaded:
// such libraries have threads of their own.
class SharedLibrary {
 public:
  // `user` begins the message of an error, such as "backend hccl".
  SharedLibrary(const char* user, const char* name)
      : user_(user), handle_(dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
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
  Status Missing(const char* what) const {
    const char* const reason = dlerror();
    return Error(ERROR_UNSUPPORTED, user_, ": ", reason == nullptr ? what : reason);
  }

  const char* const user_;
  void* const handle_;
  Status status_;
};

// A folder in which a Python package brings libraries. Thread-safe.
class PackageFolder {
 public:
  void Set(const std::string& path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    path_ = path;
  }

  // The path of the library that lies at `name` there; empty if there is none.
  std::string Find(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string path = path_ + "/" + name;
    return !path_.empty() && access(path.c_str(), R_OK) == 0 ? path : std::string();
  }

 private:
  std::mutex mutex_;
  std::string path_;
};

}  // namespace collops
