#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace [[gnu::visibility("default")]] collops {

// ATB's names and numbers (atb/types.h); this library's own start at 100.
enum ErrorCode : int {
  NO_ERROR = 0,
  ERROR_INVALID_PARAM = 1,
  ERROR_INVALID_GRAPH = 2,
  ERROR_INTERNAL_ERROR = 3,
  ERROR_RT_FAIL = 4,
  ERROR_INVALID_IN_TENSOR_NUM = 5,
  ERROR_INVALID_TENSOR_DTYPE = 6,
  ERROR_INVALID_TENSOR_FORMAT = 7,
  ERROR_INVALID_TENSOR_DIM = 8,
  ERROR_INVALID_TENSOR_SIZE = 9,
  ERROR_OPERATION_NULL_RUNNER = 10,
  ERROR_GRAPH_INFERSHAPE_FUNC_FAIL = 11,
  ERROR_CANN_ERROR = 12,
  ERROR_INVALID_TENSOR_INI_MATCH = 13,
  ERROR_INVALID_TENSOR_ADDR = 14,
  ERROR_INVALID_TENSOR_NUM = 15,
  ERROR_INVALID_TENSOR_DIM_NUM = 16,
  ERROR_INVALID_SINGLE_OPERATION_PARAM = 17,
  ERROR_GRAPH_NODE_RESHAPE_FUNC_FAIL = 18,
  ERROR_INVALID_GRAPH_NODE_CHUNK = 19,
  ERROR_INVALID_CONTEXT_ADDR = 20,
  ERROR_INVALID_STREAM = 21,
  ERROR_INVALID_WORKSPACE_SIZE = 22,
  ERROR_INVALID_WORKSPACE_ADDR = 23,
  ERROR_INVALID_OPERATION_ADDR = 24,
  ERROR_HCCL_FAIL = 25,
  ERROR_OUT_OF_DEVICE_MEMORY = 26,
  ERROR_OUT_OF_HOST_MEMORY = 27,
  ERROR_COMM_EMPTY = 28,
  ERROR_COPY_HOST_MEMORY_FAIL = 29,
  ERROR_TIMEOUT = 100,
  ERROR_PEER_LOST = 101,
  ERROR_RANK_MISMATCH = 102,
  ERROR_UNSUPPORTED = 103,
  ERROR_ABORTED = 104,
};

// The code's name, e.g. "ERROR_INVALID_PARAM"; "ERROR_UNKNOWN" for any other number.
const char* ErrorName(int code);

// The outcome of a step: a code and, unless it is NO_ERROR, a message for the user. Nothing else
// travels upward through the layers. One pointer, because a call returns tens of them.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message);
  Status(Status&& other) = default;
  Status& operator=(Status&& other) = default;
  Status(const Status& other);
  Status& operator=(const Status& other);
  ~Status() = default;

  bool ok() const { return failure_ == nullptr; }
  ErrorCode code() const { return failure_ == nullptr ? NO_ERROR : failure_->code; }
  const std::string& message() const;

 private:
  struct Failure {
    ErrorCode code;
    std::string message;
  };
  std::unique_ptr<const Failure> failure_;  // null: NO_ERROR
};

inline Status Ok() {
  return {};
}

// One part of a message: text as it is, a number in decimal (a double by "%g"), an address in
// hexadecimal. Lives as long as the expression that builds the message.
class MessagePart {
 public:
  MessagePart(std::string_view text) : text_(text) {}    // NOLINT: parts are written as they are
  MessagePart(const std::string& text) : text_(text) {}  // NOLINT
  MessagePart(const char* text) : text_(text) {}         // NOLINT
  MessagePart(char letter) : text_(digits_, 1), digits_{letter} {}  // NOLINT
  MessagePart(double number);                                       // NOLINT
  MessagePart(const void* address);                                 // NOLINT
  template <typename Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  MessagePart(Integer number) {  // NOLINT
    if constexpr (std::is_signed_v<Integer>) {
      SetSigned(number);
    } else {
      SetUnsigned(number);
    }
  }
  template <typename Enum,
            std::enable_if_t<std::is_convertible_v<Enum, int> && std::is_enum_v<Enum>, int> = 0>
  MessagePart(Enum value) : MessagePart(static_cast<int>(value)) {}  // NOLINT
  MessagePart(const MessagePart&) = delete;
  MessagePart& operator=(const MessagePart&) = delete;

  std::string_view text() const { return text_; }

 private:
  void SetSigned(long long number);
  void SetUnsigned(unsigned long long number);

  std::string_view text_;
  char digits_[32] = {};
};

std::string Joined(std::initializer_list<MessagePart> parts);

// Builds a message from text, numbers and addresses.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  return Joined({parts...});
}

template <typename... Parts>
Status Error(ErrorCode code, const Parts&... parts) {
  return Status(code, Joined({parts...}));
}

}  // namespace collops

#define COLLOPS_RETURN_IF_ERROR(expression)         \
  do {                                              \
    ::collops::Status status_macro_ = (expression); \
    if (!status_macro_.ok()) return status_macro_;  \
  } while (0)

// Returns `code` with the message built from the remaining arguments unless `condition` holds.
#define COLLOPS_CHECK_ARG(condition, code, ...)                     \
  do {                                                              \
    if (!(condition)) return ::collops::Error((code), __VA_ARGS__); \
  } while (0)
