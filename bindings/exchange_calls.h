#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "comm/communicator.h"
#include "started.h"

namespace collops::bindings {

// The calls of the plain level in which rows go from rank to rank: all_to_allv, gatherv, scatterv.
void BindExchangeCalls(pybind11::module_& module,
                       pybind11::class_<Communicator, std::shared_ptr<Communicator>>& communicator,
                       pybind11::class_<Starter>& starter);

}  // namespace collops::bindings
