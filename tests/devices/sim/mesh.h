#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// How the ranks of a simulated communicator reach each other, in threads, processes and hosts
// alike: sockets between every two, one for each channel.
namespace collops_sim {

// Opens a place at which the ranks of one communicator meet within so many seconds, and lets them:
// a thread of this process waits there, whichever rank it has. `host`: its address, or empty where
// all ranks are on one host. Returns its name, or nothing.
std::string OpenRoot(const std::string& host, double limit_s);
// The same under a name that all ranks know already; false if it cannot be had.
bool OpenRootAt(const std::string& name, double limit_s);

struct Transfer {
  int channel;
  int peer;
  bool sends;
  void* data;
  size_t bytes;
  std::function<bool()> then = nullptr;  // when it is done; false ends the exchange
  int after = -1;                        // the transfer of the list that must be done before
};

class Mesh {
 public:
  explicit Mesh(int num_channels) : sockets_(static_cast<size_t>(num_channels)) {}
  ~Mesh();

  // Waits until all ranks have come, so many seconds at most; an error's text, or nothing.
  std::string Connect(const std::string& root, const std::string& host, int rank, int size,
                      int device, double limit_s);
  const std::string& host() const { return host_; }
  // Whether two ranks have the same device.
  bool HasDuplicates() const { return has_duplicates_; }

  // What an exchange does when a peer is gone: it ends, or waits on as a kernel does.
  enum class Loss { kEnds, kWaits };
  // Moves everything at once, in list order per channel, peer and direction: -1, or the peer that
  // is gone or late, also after Stop(). Calls `on_wait` where it waits for a peer.
  int Exchange(std::vector<Transfer> transfers, double limit_s, Loss loss,
               const std::function<void()>& on_wait = nullptr);
  // For hosts, on a channel; false when the peer is gone or late.
  bool Tell(int channel, int peer, const void* data, size_t bytes, double limit_s);
  bool Hear(int channel, int peer, void* data, size_t bytes, double limit_s);
  // Whether a peer has ended, and has told nothing that is still to be heard.
  bool HasEnded(int channel, int peer) const;
  // Ends all waits, then and later.
  void Stop() { stopped_ = true; }
  bool IsStopped() const { return stopped_; }
  // The peers' exchanges end; the descriptors stay until nobody can be using them.
  void Close();

 private:
  bool Meet(const std::string& root, int rank, int size, int device, double limit_s);
  bool ConnectPeers(int rank, int size, double limit_s);

  std::atomic<bool> stopped_{false};
  bool has_duplicates_ = false;
  std::string host_;
  std::vector<std::vector<int>> sockets_;  // by channel and rank; -1 for the own one
  std::vector<std::string> names_;
  int listener_ = -1;
  int rank_ = 0;
};

}  // namespace collops_sim
