#pragma once

namespace collops {

// Whether COLLOPS_TRACE=1 is set: every call of a communicator then logs one line.
bool TraceEnabled();

// Whether COLLOPS_TRACE=2 is set: a fused call then logs what it has done and when.
bool TraceStrips();

}  // namespace collops
