#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "collops/comm/communicator.h"
#include "plain/started.h"

namespace collops::bindings {

// The plain level's messages between two ranks.
void BindMessages(pybind11::class_<Communicator, std::shared_ptr<Communicator>>& bound,
                  pybind11::class_<Starter>& starter);

}  // namespace collops::bindings
