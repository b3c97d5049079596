#pragma once

#include <string>

#include "driver/stream.h"
#include "sim/capture.h"

// CUDA's rules on what else may be called while streams are captured into graphs.
namespace collops_sim {

// kSuccess, or the answer to a call that this thread may not make now; the captures that forbid it
// are invalid from then on.
Result CaptureForbids(const std::string& function);
// An illegal call on a captured stream: its capture is invalid from then on.
Result RefuseInCapture(Stream* stream, const std::string& what);

// Whether a stream of which the host asks is the legacy one, and waits for a captured stream.
Result AskLegacy(const Stream* stream);

// Whether this thread may end the stream's capture.
Result MayEndHere(const Stream* stream);
collops::cuda::CaptureMode ExchangeMode(collops::cuda::CaptureMode mode);

}  // namespace collops_sim
