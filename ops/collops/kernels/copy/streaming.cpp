#include "collops/kernels/copy/streaming.h"

#include "collops/core/env.h"

namespace collops::kernels {
namespace {

int64_t Read() {
  Env env;
  // An invalid value is reported where communicators are made; until then the default holds.
  static_cast<void>(Env::Read(&env));
  return env.tuning.streamed_output;
}

}  // namespace

int64_t StreamedOutputBytes() {
  static const int64_t bytes = Read();
  return bytes;
}

}  // namespace collops::kernels
