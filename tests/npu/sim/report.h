#pragma once

#include <string>

// What went wrong, as CANN tells it, and what a test wants to go wrong.
namespace collops_sim {

// The text that aclGetRecentErrMsg gives out once; returns `code`.
int Report(int code, const std::string& text);

// COLLOPS_SIM_FAIL="HcclAllGatherV:3:9,...": the third call of HcclAllGatherV answers 9. 0 for a
// call that shall run.
int ToldToFail(const char* function);

}  // namespace collops_sim
