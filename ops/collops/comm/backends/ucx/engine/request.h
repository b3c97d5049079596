#pragma once

#include <cstddef>

#include "collops/comm/backends/ucx/engine/api.h"

namespace collops::ucx {

class Worker;

// One send or receive. While it is pending its memory belongs to UCX; the destructor therefore ends
// one that is, by Worker::End(). Owned by the caller, who may use it again once it is done; it
// stays where it is, as the worker keeps a list of those that are pending.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request();

  bool pending() const { return handle_ != nullptr; }
  // Once done: kOk, or how it failed.
  Result result() const { return result_; }
  bool ok() const { return !pending() && result_ == Result::kOk; }
  // Once done: the bytes of the message.
  size_t bytes() const { return bytes_; }
  int peer() const { return peer_; }

 private:
  friend class Worker;

  Worker* worker_ = nullptr;
  void* handle_ = nullptr;
  Request* previous_ = nullptr;
  Request* next_ = nullptr;
  int peer_ = 0;
  bool receives_ = false;
  bool hands_over_ = false;  // a send, which an empty message is still to follow
  Result result_ = Result::kOk;
  size_t bytes_ = 0;
};

}  // namespace collops::ucx
