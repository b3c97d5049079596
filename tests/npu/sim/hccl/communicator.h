#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "acl.h"
#include "call.h"
#include "sim/mesh.h"

namespace collops_sim {

// HCCL's answers that are used here (hccl_types.h).
enum Result {
  kSuccess = 0,
  kBadParameter = 1,
  kNullPointer = 2,
  kInternal = 4,
  kNotSupported = 5,
  kNotFound = 6,
  kNotAvailable = 7,
  kTimeout = 9,
  kTcpConnect = 11,
  kRemote = 21,
};

// COLLOPS_SIM_HOST_IP: the address of this host; empty if it is not set.
std::string HostAddress();
// HCCL_CONNECT_TIMEOUT: how long ranks wait for each other on the host.
double ConnectS();
// Meets the other ranks: kSuccess, or kTimeout.
int Connect(Mesh& mesh, const std::string& root, const std::string& host, int rank, int size,
            int device);
// What the ranks' sockets are for.
enum Channel { kStreams, kHosts, kLinks, kNumChannels };

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

  enum Origin { kRootInfo, kRankTable, kSub };
  Origin origin = kRootInfo;
  uint32_t buffer_mb = 0;  // of each of its two
  // The ids and names of the sub-communicators that this rank has made of it.
  std::set<uint64_t> sub_ids;
  std::set<std::string> sub_names;

  // Connects the ranks of a call, in the first one of its function, or of its function and the two
  // ranks of a message. Waits on the host, as HCCL does: nothing but HCCL_CONNECT_TIMEOUT ends it,
  // and then the communicator, too.
  int Link(const Call& call);
  void Enqueue(Call call, Stream* stream);

 private:
  // A function, and the direction of a message; and the other rank.
  using End = std::pair<uint64_t, int>;
  std::vector<End> EndsOf(const Call& call) const;
  // The place of a call in this rank's order, and its number among the collectives.
  struct Place {
    uint64_t turn;
    uint64_t number;
  };

  int Run(const Call& call, Place place);
  int RunCollective(const Call& call, uint64_t number);
  int RunPairs(const Call& call);
  void Finish(const Call& call, const std::vector<std::vector<char>>& parts);
  int Exchange(std::vector<Transfer> transfers);
  int Compare(int peer, const Header& mine, const Header& theirs);
  int Fail(int code, const std::string& text);

  const int rank_;
  const int size_;
  const int device_;
  Mesh mesh_{kNumChannels};
  std::string name_;
  std::atomic<int> error_{0};
  std::mutex mutex_;
  std::condition_variable turn_;
  std::mutex linking_;
  std::set<End> linked_;
  std::set<End> heard_;  // the other rank waits for this one
  uint64_t num_calls_ = 0;
  uint64_t num_collectives_ = 0;
  uint64_t next_ = 0;  // the call whose turn it is
};

}  // namespace collops_sim
