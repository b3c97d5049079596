#pragma once

#include <vector>

#include "comm/backends/hccl/api.h"
#include "core/status.h"

namespace collops::hccl {

// One HcclComm, its own or the caller's, and the mark that its last call leaves on each stream. One
// thread at a time, on the communicator's NPU.
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

  // Lets go of the communicator, from any thread. One of our own is destroyed, on its NPU, once all
  // its calls are known to have ended; else it stays, and nothing is destroyed under them.
  void Release(int device);

 private:
  struct Mark {
    Stream stream;
    Event event;
  };

  Status FindEvent(Stream stream, Event* event);
  bool WaitForEnd() const;
  void Destroy() const;

  const Api& api_;
  Comm comm_ = nullptr;
  bool owned_ = false;
  std::vector<Mark> marks_;
  bool unmarked_ = false;  // a call has no mark, so nobody can tell its end
};

}  // namespace collops::hccl
