// The calls of collops's operators, planned, through the public C++ interface alone.
#pragma once

#include "measure/measure.h"

namespace bench::collops_calls {

// The ways "plain" (x in plain memory) and "window" (x in memory that peers read in place). The
// calls are Execute of an operation with all its checks; of send_recv one Messages() of a send to
// the next rank and a receive from the one before.
std::vector<Way> Ways();

}  // namespace bench::collops_calls
