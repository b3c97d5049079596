#include "collops/core/status.h"

#include <charconv>
#include <cstdio>

namespace collops {

const char* ErrorName(int code) {
  static constexpr const char* kNames[] = {
      "NO_ERROR",
      "ERROR_INVALID_PARAM",
      "ERROR_INVALID_GRAPH",
      "ERROR_INTERNAL_ERROR",
      "ERROR_RT_FAIL",
      "ERROR_INVALID_IN_TENSOR_NUM",
      "ERROR_INVALID_TENSOR_DTYPE",
      "ERROR_INVALID_TENSOR_FORMAT",
      "ERROR_INVALID_TENSOR_DIM",
      "ERROR_INVALID_TENSOR_SIZE",
      "ERROR_OPERATION_NULL_RUNNER",
      "ERROR_GRAPH_INFERSHAPE_FUNC_FAIL",
      "ERROR_CANN_ERROR",
      "ERROR_INVALID_TENSOR_INI_MATCH",
      "ERROR_INVALID_TENSOR_ADDR",
      "ERROR_INVALID_TENSOR_NUM",
      "ERROR_INVALID_TENSOR_DIM_NUM",
      "ERROR_INVALID_SINGLE_OPERATION_PARAM",
      "ERROR_GRAPH_NODE_RESHAPE_FUNC_FAIL",
      "ERROR_INVALID_GRAPH_NODE_CHUNK",
      "ERROR_INVALID_CONTEXT_ADDR",
      "ERROR_INVALID_STREAM",
      "ERROR_INVALID_WORKSPACE_SIZE",
      "ERROR_INVALID_WORKSPACE_ADDR",
      "ERROR_INVALID_OPERATION_ADDR",
      "ERROR_HCCL_FAIL",
      "ERROR_OUT_OF_DEVICE_MEMORY",
      "ERROR_OUT_OF_HOST_MEMORY",
      "ERROR_COMM_EMPTY",
      "ERROR_COPY_HOST_MEMORY_FAIL",
  };
  static constexpr const char* kOwnNames[] = {
      "ERROR_TIMEOUT",     "ERROR_PEER_LOST", "ERROR_RANK_MISMATCH",
      "ERROR_UNSUPPORTED", "ERROR_ABORTED",
  };
  if (code >= NO_ERROR && code <= ERROR_COPY_HOST_MEMORY_FAIL) return kNames[code];
  if (code >= ERROR_TIMEOUT && code <= ERROR_ABORTED) return kOwnNames[code - ERROR_TIMEOUT];
  return "ERROR_UNKNOWN";
}

Status::Status(ErrorCode code, std::string message) {
  if (code == NO_ERROR) return;
  failure_ = std::make_unique<const Failure>(Failure{code, std::move(message)});
}

Status::Status(const Status& other) {
  if (!other.ok()) failure_ = std::make_unique<const Failure>(*other.failure_);
}

Status& Status::operator=(const Status& other) {
  if (this != &other) *this = Status(other);
  return *this;
}

const std::string& Status::message() const {
  static const std::string empty;
  return ok() ? empty : failure_->message;
}

MessagePart::MessagePart(double number) {
  const int length = std::snprintf(digits_, sizeof(digits_), "%g", number);
  text_ = {digits_, static_cast<size_t>(length)};
}

MessagePart::MessagePart(const void* address) {
  const int length = std::snprintf(digits_, sizeof(digits_), "%p", address);
  text_ = {digits_, static_cast<size_t>(length)};
}

void MessagePart::SetSigned(long long number) {
  const auto end = std::to_chars(digits_, digits_ + sizeof(digits_), number).ptr;
  text_ = {digits_, static_cast<size_t>(end - digits_)};
}

void MessagePart::SetUnsigned(unsigned long long number) {
  const auto end = std::to_chars(digits_, digits_ + sizeof(digits_), number).ptr;
  text_ = {digits_, static_cast<size_t>(end - digits_)};
}

std::string Joined(std::initializer_list<MessagePart> parts) {
  size_t length = 0;
  for (const MessagePart& part : parts) length += part.text().size();
  std::string text;
  text.reserve(length);
  for (const MessagePart& part : parts) text += part.text();
  return text;
}

}  // namespace collops
