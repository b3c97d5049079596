#pragma once

namespace collops_sim {

// Whether a call that may wait for kernels counts as a mistake while one waits for its peers. It
// does, unless COLLOPS_SIM_WAITS_OF names a library and the call comes from elsewhere: a program
// may wait for its own ranks' kernels, but a library that does so inside of a call may keep the
// peers from coming.
bool CountsAsWait();

}  // namespace collops_sim
