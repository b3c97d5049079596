#pragma once

#include <string>

namespace [[gnu::visibility("default")]] collops {

// Whether COLLOPS_TRACE=1 is set: every call of a communicator then writes one line.
bool TraceEnabled();

// Whether COLLOPS_TRACE=2 is set: a fused call then writes what it has done and when.
bool TraceStrips();

// Writes one line to standard error, not mixed with lines of other ranks.
void Trace(const std::string& line);

}  // namespace collops
