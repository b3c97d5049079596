#include "comm/backends/missing_engine.h"

#include <dlfcn.h>

namespace collops {

Status EngineMissing(const char* backend, const char* library) {
  // Left open: a vendor's library may have started threads, which unloading would pull its code
  // from under.
  if (dlopen(library, RTLD_LAZY | RTLD_LOCAL) != nullptr) {
    return Error(ERROR_UNSUPPORTED, "backend ", backend, ": ", library,
                 " is here, but this version of collops has no ", backend, " engine yet");
  }
  const char* const reason = dlerror();
  return Error(ERROR_UNSUPPORTED, "backend ", backend, ": ", reason == nullptr ? library : reason);
}

}  // namespace collops
