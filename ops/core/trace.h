#pragma once

#include <string>

namespace collops {

// Whether COLLOPS_TRACE=1 is set: then every call of a communicator writes one line.
bool TraceEnabled();

// Writes one line to standard error, whole, whatever the other ranks write.
void Trace(const std::string& line);

}  // namespace collops
