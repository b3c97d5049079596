#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "collops/core/status.h"
#include "gil.h"

namespace collops::bindings {

// Raises collops.Error unless `status` is Ok. A pending Python exception takes precedence: it is
// the KeyboardInterrupt that ended the wait.
void ThrowIfError(const Status& status);

// "ValueError: message", without the stack that what() adds.
std::string ToString(const pybind11::error_already_set& error);

// Runs a call that may wait for other ranks with the GIL released, then raises its error.
template <typename Call>
void RunWithoutGil(const Call& call) {
  Status status;
  {
    const ReleasedGil released;
    status = call();
  }
  ThrowIfError(status);
}

}  // namespace collops::bindings
