#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "mesh.h"
#include "stream.h"

namespace collops_sim {

// HCCL's answers that are used here (hccl_types.h).
enum Result {
  kSuccess = 0,
  kBadParameter = 1,
  kNullPointer = 2,
  kInternal = 4,
  kNotSupported = 5,
  kTimeout = 9,
  kRemote = 21,
};

// One V call with everything that it was given. With COLLOPS_SIM_LATE_COUNTS=1 the lists of the
// caller are read again when the stream comes to the call, and must still be there and the same.
struct Collective {
  enum Kind : uint32_t { kAllGatherV = 1, kReduceScatterV = 2 };

  Kind kind = kAllGatherV;
  uint32_t type = 0;
  uint32_t reduction = 0;
  const char* input = nullptr;
  char* output = nullptr;
  std::vector<uint64_t> counts;  // of every rank, in elements
  std::vector<uint64_t> displs;
  const uint64_t* late_counts = nullptr;  // null: they are not read again
  const uint64_t* late_displs = nullptr;

  // Takes the lists of `size` numbers each.
  void Read(const void* all_counts, const void* all_displs, int size);
  // Whether the caller's lists are what they were.
  bool IsUnchanged() const;
};

// One rank of a group. Its calls run one after the other in the order in which they were made, each
// on the stream it was given, and each is compared with the peers' before anything moves.
class Communicator {
 public:
  Communicator(int rank, int size, int device) : rank_(rank), size_(size), device_(device) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  int device() const { return device_; }
  int error() const { return error_.load(); }
  Mesh& mesh() { return mesh_; }
  // Equal on all ranks.
  const std::string& name() const { return name_; }
  void set_name(const std::string& name) { name_ = name; }

  // What HCCL documents of such a call: kSuccess, or why it is refused at once.
  int Check(const Collective& call, uint64_t own_count) const;
  void Enqueue(Collective call, Stream* stream);

 private:
  int Run(const Collective& call, uint64_t number);
  int Exchange(const Collective& call, uint64_t number);
  void SendAll(const Collective& call, uint64_t number);
  int ReceiveAll(const Collective& call, uint64_t number);
  int Fail(int code, const std::string& text);

  const int rank_;
  const int size_;
  const int device_;
  Mesh mesh_;
  std::string name_;
  std::atomic<int> error_{0};
  uint64_t num_calls_ = 0;
  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ = 0;  // the call whose turn it is
};

}  // namespace collops_sim
