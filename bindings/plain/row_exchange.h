#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "collops/comm/communicator.h"

namespace collops::bindings {

// How ranks that were given no sizes learn each other's rows.
void BindRowExchange(pybind11::module_& module,
                     pybind11::class_<Communicator, std::shared_ptr<Communicator>>& communicator);

}  // namespace collops::bindings
