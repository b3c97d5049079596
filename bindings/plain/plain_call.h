#pragma once

#include "collops/comm/communicator.h"
#include "status.h"

namespace collops::bindings {

// The number of a user's call that comes now. In a call that runs in its turn it is that one's.
inline uint64_t NextCall(Communicator& communicator) {
  const uint64_t own = UserCall::Number();
  return own != 0 ? own : communicator.user_calls().Next();
}

// The call that was numbered last goes on: `parts` steps from here on are one, or one more step.
inline void BeginParts(Communicator& communicator, int parts) {
  if (UserCall::Number() == 0) communicator.user_calls().Begin(parts);
}
inline void ContinueCall(Communicator& communicator) {
  if (UserCall::Number() == 0) communicator.user_calls().Continue();
}

// Runs a call of the user's, under its number.
template <typename Call>
void RunNumbered(Communicator& communicator, const Call& call) {
  const UserCall number(NextCall(communicator));
  try {
    RunWithoutGil(call);
  } catch (...) {
    communicator.user_calls().Forget();
    throw;
  }
}

}  // namespace collops::bindings
