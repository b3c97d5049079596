#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "collops/comm/communicator.h"
#include "plain/started.h"

namespace collops::bindings {

// The plans of the plain level's calls, and the one way in which a communicator makes such a call,
// or starts it.
void BindPlainPlans(pybind11::module_& module,
                    pybind11::class_<Communicator, std::shared_ptr<Communicator>>& communicator,
                    pybind11::class_<Starter>& starter);

}  // namespace collops::bindings
