#include "collops/kernels/cuda/driver/error.h"

namespace collops::cuda {
namespace {

ErrorCode CodeOf(Result result) {
  if (result == Result::kOutOfMemory) return ERROR_OUT_OF_DEVICE_MEMORY;
  if (result == Result::kInvalidDevice) return ERROR_INVALID_PARAM;
  if (result == Result::kNotSupported || result == Result::kNoBinaryForGpu) {
    return ERROR_UNSUPPORTED;
  }
  return ERROR_RT_FAIL;
}

// The driver leaves the pointer null for a number that it does not know.
const char* Ask(Result (*ask)(Result, const char**), Result result, const char* otherwise) {
  const char* text = nullptr;
  static_cast<void>(ask(result, &text));
  return text == nullptr ? otherwise : text;
}

}  // namespace

Status ToStatus(const DriverApi& api, Result result, const char* call) {
  if (result == Result::kSuccess) return Ok();
  return Error(CodeOf(result), call, " returned ", static_cast<int32_t>(result), " (",
               Ask(api.get_error_name, result, "a CUresult without a name"),
               "): ", Ask(api.get_error_string, result, "the driver has no text for it"));
}

}  // namespace collops::cuda
