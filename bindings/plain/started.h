#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <vector>

#include "collops/comm/communicator.h"

namespace collops::bindings {

// Makes the result of a call that has ended, with the GIL; of messages from the ranks that sent
// them.
using MakeResultOf = std::function<pybind11::object(const std::vector<int>& sources)>;
using CoreStep = std::function<Status(Communicator&)>;

// A started call as Python holds it; without a handle it has ended.
pybind11::object StartedCallOf(std::shared_ptr<Communicator> communicator,
                               Communicator::Handle handle, MakeResultOf make);

// Puts steps into the queue, of which one that fails is the last. They are of the user's call that
// this thread makes. What they use stays alive until they have ended. `name` lives as long as the
// process.
Communicator::Handle StartSteps(const std::shared_ptr<Communicator>& communicator, const char* name,
                                std::vector<CoreStep> steps, std::vector<pybind11::object> kept);

// Starts a call that runs as a whole when the queue reaches it, in any thread, as it would run
// without start().
pybind11::object StartInTurn(const std::shared_ptr<Communicator>& communicator, const char* name,
                             std::function<pybind11::object()> run);

// `make`, in torch's mode of this moment (inference_mode, no_grad), whichever thread waits.
MakeResultOf InThisMode(MakeResultOf make);

void BindStartedCall(pybind11::module_& module);

}  // namespace collops::bindings
