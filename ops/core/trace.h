#pragma once

#include <string>

namespace collops {

// Whether COLLOPS_TRACE=1 is set: then every call of a communicator writes one line.
bool TraceEnabled();

// Whether COLLOPS_TRACE=2 is set: then a fused call writes what it has done and when.
bool TraceStrips();

// Writes one line to standard error, whole, whatever the other ranks write.
void Trace(const std::string& line);

}  // namespace collops
