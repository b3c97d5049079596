#include "collops/comm/backends/nccl/library/error.h"

#include <string>

namespace collops::nccl {
namespace {

ErrorCode CodeOf(Result result) {
  switch (result) {
    case Result::kInvalidArgument:
    case Result::kInvalidUsage:
      return ERROR_INVALID_PARAM;
    case Result::kRemoteError:
      return ERROR_PEER_LOST;
    case Result::kUnhandledCudaError:
    case Result::kSystemError:
    case Result::kInternalError:
    case Result::kSuccess:
    case Result::kInProgress:
      break;
  }
  return ERROR_RT_FAIL;
}

std::string Trimmed(const char* text) {
  std::string line = text == nullptr ? "" : text;
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  return line;
}

}  // namespace

Status ToStatus(const Api& api, Result result, const char* call) {
  if (result == Result::kSuccess || result == Result::kInProgress) return Ok();
  const std::string last = Trimmed(api.get_last_error(nullptr));
  return Error(CodeOf(result), call, " failed: ", Trimmed(api.get_error_string(result)), " (",
               static_cast<int>(result), ")", last.empty() ? "" : ": ", last);
}

}  // namespace collops::nccl
