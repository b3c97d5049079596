#include "collops/core/trace/lines.h"

#include "collops/core/env.h"

namespace collops {

namespace {

// An invalid value is reported where the environment is read to create something.
int TraceLevel() {
  Env env;
  return Env::Read(&env).ok() ? env.trace : 0;
}

}  // namespace

bool TraceEnabled() {
  return TraceLevel() >= 1;
}

bool TraceStrips() {
  return TraceLevel() >= 2;
}

}  // namespace collops
