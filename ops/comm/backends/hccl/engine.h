#pragma once

#include "comm/backends/hccl/api.h"
#include "core/status.h"

namespace collops::hccl {

// One HcclComm, its own or the caller's, and the mark that its last call leaves on a stream. One
// thread at a time.
class Engine {
 public:
  explicit Engine(const Api& api) : api_(api) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Api& api() const { return api_; }
  Comm comm() const { return comm_; }

  // Makes a communicator together with the other ranks; HCCL_CONNECT_TIMEOUT limits the wait.
  Status Initialise(int rank, int rank_size, const RootInfo& root_info);
  // Uses a communicator of the caller's, which is never destroyed here.
  void Adopt(Comm comm) { comm_ = comm; }

  // Ok, or what an earlier call has run into since.
  Status CheckHealth() const;

  // Notes that a call was put on `stream`.
  Status MarkEnd(Stream stream);

  // Lets go of the communicator. One of our own is destroyed once its last call has ended; while
  // that does not end, nothing is destroyed under it.
  void Release();

 private:
  bool WaitForEnd() const;

  const Api& api_;
  Comm comm_ = nullptr;
  bool owned_ = false;
  Event end_ = nullptr;
};

}  // namespace collops::hccl
