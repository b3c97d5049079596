#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nccl/call.h"
#include "sim/mesh.h"

namespace collops_sim {

// ncclResult_t.
enum class Nccl : int32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// What the ranks' sockets are for; hosts agree on parts, and connect, apart from kernels.
enum Channel { kCollectives, kMessages, kAnswers, kHosts, kConnections, kNumChannels };

// The answer to a wrong call, and why: ncclGetLastError() tells the process.
Nccl RefuseNccl(Nccl result, const std::string& text);

// One rank of a communicator. Its groups of calls run one after the other in the order in which
// they were made, each on its streams; what they do is compared with the peers' before anything
// moves.
class Comm : public std::enable_shared_from_this<Comm> {
 public:
  Comm(int rank, int size, int device, bool blocks)
      : rank_(rank), size_(size), device_(device), blocks_(blocks) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  int device() const { return device_; }
  bool blocks() const { return blocks_; }
  Mesh& mesh() { return mesh_; }

  // ncclCommGetAsyncError's: kInProgress while a call that does not block is under way.
  Nccl state() const { return state_; }
  void set_state(Nccl state) { state_ = state; }

  // Of a part, whose members are known only now.
  void SetPlace(int rank, int size) {
    rank_ = rank;
    size_ = size;
  }
  // Meets the other ranks.
  Nccl Meet(const std::string& root);
  // Puts one group's calls on their streams. Waits on the host, as NCCL connects ranks when they
  // first need each other: in its first collective for all ranks, in its first message with a rank
  // for that one.
  Nccl Launch(const std::vector<Call>& calls);
  // Waits until all calls have run; false if it takes longer than TimeoutS().
  bool Finish();
  // Ends what runs and waits; no call does anything from then on.
  void Abort();
  // Tells the other ranks that this one lets go of it, which ncclCommDestroy wants from all ranks
  // of a host. If it `waits` for them, one that has ended without that is a mistake.
  void LetGo(bool waits);
  // Waits until no graph has a call, as ncclCommDestroy and ncclCommAbort do; a mistake if it takes
  // longer than TimeoutS().
  void AwaitGraphs(const char* function);

  // A thread that makes calls on it; another one at the same time is a mistake.
  bool Take();
  void Leave();

 private:
  bool ConnectFor(const std::vector<Call>& calls);
  Result Run(const std::vector<Call>& calls, uint64_t place);
  // Moves what the kernel that runs moves; once it has waited it counts as waiting until it ends.
  bool Exchange(std::vector<Transfer> transfers);
  bool RunCollective(const Call& call, uint64_t number);
  bool RunMessages(const std::vector<Call>& calls);
  bool Compare(const std::vector<Header>& mine, const std::vector<Header>& theirs,
               const std::vector<int>& peers);
  bool Move(const Call& call);
  void Reduce(const Call& call, const std::vector<std::vector<char>>& parts);
  bool Stopped();
  bool Fail(Nccl code, const std::string& text);

  int rank_;
  int size_;
  const int device_;
  const bool blocks_;
  Mesh mesh_{kNumChannels};
  std::atomic<Nccl> state_{Nccl::kSuccess};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t num_launched_ = 0;
  uint64_t num_collectives_ = 0;
  uint64_t next_ = 0;  // the group whose turn it is
  bool is_running_ = false;
  bool waits_ = false;  // what runs
  std::thread::id user_;
  bool has_met_ = false;
  bool has_connected_all_ = false;
  std::vector<bool> has_connected_;  // by peer, for messages
  const std::shared_ptr<const char> captured_ = std::make_shared<const char>();  // graphs share it
};

// Null for a handle that is none of ours.
std::shared_ptr<Comm> FindComm(void* handle);
void KeepComm(const std::shared_ptr<Comm>& comm);
bool ForgetComm(void* handle);

}  // namespace collops_sim
