#pragma once

#include <string>

#include "skin.h"

// What goes wrong on a simulated device, and what a test wants to go wrong.
namespace collops_sim {

// An answer to a wrong call, and why, as the library of the skin tells a thread.
Answer Refuse(Answer answer, const std::string& text);

// A mistake for which the real library has no answer.
void Mistake(const std::string& text);

// COLLOPS_SIM_FAIL="cuMemAlloc_v2:3:2,...": the third call answers 2, which is refused here. 0 for
// a call that shall work.
int PlannedFailure(const std::string& name);

// COLLOPS_SIM_TIMEOUT_S, or 60: after it, a wait of the simulation itself is a mistake.
double TimeoutS();

}  // namespace collops_sim
