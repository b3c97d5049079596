#include "collops/comm/backends/hccl/library/error.h"

#include <string>

namespace collops::hccl {
namespace {

// ATB's mapping, with codes of this library where they are more specific than ERROR_HCCL_FAIL.
ErrorCode CodeOf(Result result) {
  if (result == Result::kSuccess) return NO_ERROR;
  if (result == Result::kParameter) return ERROR_INVALID_PARAM;
  if (result == Result::kMemory || result == Result::kOutOfMemory) {
    return ERROR_OUT_OF_DEVICE_MEMORY;
  }
  if (result == Result::kNotSupport) return ERROR_UNSUPPORTED;
  if (result == Result::kTimeout) return ERROR_TIMEOUT;
  if (result == Result::kRemote) return ERROR_PEER_LOST;
  return ERROR_HCCL_FAIL;
}

// CANN stores the text of the last error and returns it once.
std::string Explanation(const Api& api) {
  const char* const text = api.get_recent_error();
  return text == nullptr || *text == '\0' ? "" : Concat(": ", text);
}

}  // namespace

const char* Name(Result result) {
  static constexpr const char* kNames[] = {
      "HCCL_SUCCESS",
      "HCCL_E_PARA",
      "HCCL_E_PTR",
      "HCCL_E_MEMORY",
      "HCCL_E_INTERNAL",
      "HCCL_E_NOT_SUPPORT",
      "HCCL_E_NOT_FOUND",
      "HCCL_E_UNAVAIL",
      "HCCL_E_SYSCALL",
      "HCCL_E_TIMEOUT",
      "HCCL_E_OPEN_FILE_FAILURE",
      "HCCL_E_TCP_CONNECT",
      "HCCL_E_ROCE_CONNECT",
      "HCCL_E_TCP_TRANSFER",
      "HCCL_E_ROCE_TRANSFER",
      "HCCL_E_RUNTIME",
      "HCCL_E_DRV",
      "HCCL_E_PROFILING",
      "HCCL_E_CCE",
      "HCCL_E_NETWORK",
      "HCCL_E_AGAIN",
      "HCCL_E_REMOTE",
      "HCCL_E_SUSPENDING",
      "HCCL_E_OPRETRY_FAIL",
      "HCCL_E_OOM",
  };
  const auto number = static_cast<int32_t>(result);
  const bool known = number >= 0 && number <= static_cast<int32_t>(Result::kOutOfMemory);
  return known ? kNames[number] : "an unknown HcclResult";
}

Status ToStatus(const Api& api, Result result, const char* call) {
  if (result == Result::kSuccess) return Ok();
  return Error(CodeOf(result), call, " returned ", static_cast<int32_t>(result), " (", Name(result),
               ")", Explanation(api));
}

Status ToStatus(const Api& api, AclError error, const char* call) {
  if (error == 0) return Ok();
  const ErrorCode code = error == kAclBadAlloc ? ERROR_OUT_OF_DEVICE_MEMORY : ERROR_RT_FAIL;
  return Error(code, call, " returned aclError ", error, Explanation(api));
}

}  // namespace collops::hccl
