// A call of a communicator whose body a test writes.
#ifndef COLLOPS_TESTS_CPP_RUN_CALL_H_
#define COLLOPS_TESTS_CPP_RUN_CALL_H_

#include "collops/comm/control/control.h"

// As the communicator does it: `body` is the only call of this rank, and its error ends the group.
template <typename Body>
collops::Status RunCall(collops::control::Control& control, const char* name, Body&& body) {
  collops::control::Control::Call call(&control);
  COLLOPS_RETURN_IF_ERROR(call.Begin(name));
  return call.End(collops::control::Control::Catch(name, body));
}

#endif  // COLLOPS_TESTS_CPP_RUN_CALL_H_
