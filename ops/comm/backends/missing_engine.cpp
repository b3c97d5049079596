#include "comm/backends/missing_engine.h"

namespace collops {

Status EngineMissing(const char* backend, const char* library) {
  return Error(ERROR_UNSUPPORTED, "backend ", backend,
               ": not built in this version of collops, and ", library,
               " does not add it: use shm or hccl");
}

}  // namespace collops
