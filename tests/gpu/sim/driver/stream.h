#pragma once

#include "driver/context.h"
#include "sim/stream.h"

namespace collops_sim {

// The stream behind a handle of any context; null and 1 are the legacy stream of the current one, 2
// is this thread's own. kInvalidHandle if there is none.
Result FindStream(void* handle, Stream** stream);
// The same for a call that puts work on it: it must be the current context's.
Result FindHere(void* handle, Stream** stream);
// Waits until everything that is queued now has run; the context's error. A wait of longer than
// TimeoutS() is a mistake.
Result Synchronize(Stream* stream);

inline Context* ContextOf(const Stream* stream) {
  return static_cast<Context*>(stream->home());
}

}  // namespace collops_sim
