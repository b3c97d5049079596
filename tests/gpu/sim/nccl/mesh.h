#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// How the ranks of a simulated communicator reach each other, in threads, processes and hosts
// alike: sockets between every two, for collectives, for messages, for what hosts agree on, and for
// connecting.
namespace collops_sim {

// COLLOPS_SIM_HOST_IP: the address of this host; empty where all ranks are on one host.
std::string HostAddress();

// Opens a place at which the ranks of one communicator meet, and lets them: a thread of this
// process waits there, as NCCL's does, whichever rank it has. Its name goes into the unique id.
std::string OpenRoot();

class Mesh {
 public:
  enum Channel { kCollectives, kMessages, kAnswers, kHosts, kConnections, kNumChannels };

  struct Transfer {
    Channel channel;
    int peer;
    bool sends;
    void* data;
    size_t bytes;
    std::function<bool()> then = nullptr;  // when it is done; false ends the exchange
    int after = -1;                        // the transfer of the list that must be done before
  };

  ~Mesh();

  // Waits until all ranks have come; an error's text, or nothing.
  std::string Connect(const std::string& root, int rank, int size, int device);
  // Whether two ranks have the same GPU.
  bool HasDuplicates() const { return has_duplicates_; }

  // Moves everything at once, in list order per channel, peer and direction. False when it was
  // stopped, or after TimeoutS(): a peer that is gone does not end it, as NCCL's kernels wait for
  // ever. Calls `on_wait` where it waits for a peer.
  bool Exchange(std::vector<Transfer> transfers, const std::function<void()>& on_wait = nullptr);
  // A peer on another host has closed its end.
  bool HasLostHost() const { return has_lost_host_; }

  bool Tell(int peer, const void* data, size_t bytes);
  bool Hear(int peer, void* data, size_t bytes);
  // Ends all waits, then and later.
  void Stop() { stopped_ = true; }
  bool IsStopped() const { return stopped_; }

 private:
  bool Meet(const std::string& root, int rank, int size, int device);
  bool ConnectPeers(int rank, int size);
  // -1: the peer is gone; else the bytes that were moved.
  ptrdiff_t Move(int descriptor, const Transfer& transfer);

  std::atomic<bool> stopped_{false};
  std::atomic<bool> has_lost_host_{false};
  bool has_duplicates_ = false;
  std::vector<int> sockets_[kNumChannels];  // by rank; -1 for the own one
  std::vector<std::string> names_;
  std::vector<std::string> hosts_;
  int listener_ = -1;
  int rank_ = 0;
};

}  // namespace collops_sim
