#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collops/core/status.h"

namespace collops {

// A vendor's library that is opened at run time, or several over which its functions are spread,
// and the first error in loading them. Never unloaded: such libraries have threads of their own.
class SharedLibrary {
 public:
  // `user` begins the message of an error, such as "backend hccl".
  SharedLibrary(const char* user, const char* name) : SharedLibrary(user, std::vector{name}) {
    if (!OpenNext()) status_ = Error(ERROR_UNSUPPORTED, user_, ": ", reasons_.back());
  }

  // Each library is opened when those before it lack a function.
  SharedLibrary(const char* user, std::vector<const char*> names)
      : user_(user), names_(std::move(names)) {}

  template <typename Function>
  void Find(const char* symbol, Function* function) {
    FindIfThere(symbol, function);
    if (*function == nullptr && status_.ok()) status_ = Missing(symbol);
  }

  // Leaves the pointer null if the library is too old to have the function.
  template <typename Function>
  void FindIfThere(const char* symbol, Function* function) {
    *function = nullptr;
    for (size_t i = 0; i < names_.size() && *function == nullptr; ++i) {
      if (i == handles_.size()) OpenNext();
      if (handles_[i] == nullptr) continue;
      *function = reinterpret_cast<Function>(dlsym(handles_[i], symbol));
    }
  }

  const Status& status() const { return status_; }

 private:
  bool OpenNext() {
    const char* const name = names_[handles_.size()];
    handles_.push_back(dlopen(name, RTLD_NOW | RTLD_GLOBAL));
    reasons_.push_back(handles_.back() == nullptr ? ReasonOr(name) : "");
    return handles_.back() != nullptr;
  }

  // Why each library does not have it.
  Status Missing(const char* symbol) const {
    std::string said;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (handles_[i] != nullptr) dlsym(handles_[i], symbol);
      said += (i == 0 ? "" : "; ") + (handles_[i] == nullptr ? reasons_[i] : ReasonOr(symbol));
    }
    return Error(ERROR_UNSUPPORTED, user_, ": ", said);
  }

  static std::string ReasonOr(const char* what) {
    const char* const reason = dlerror();
    return reason == nullptr ? what : reason;
  }

  const char* const user_;
  const std::vector<const char*> names_;
  std::vector<void*> handles_;        // of the libraries that were opened, or null
  std::vector<std::string> reasons_;  // why not
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
