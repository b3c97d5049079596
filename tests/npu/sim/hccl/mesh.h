#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// How simulated NPUs of several processes reach each other: two sockets between every two ranks,
// one for what streams move and one for what hosts agree on meanwhile.
namespace collops_sim {

// What HcclGetRootInfo tells: the name of the socket at which this process gathers the ranks.
// `host`: its address, or empty where all ranks are on one host.
std::string OpenRoot(const std::string& host);
// The same under a name that all ranks know already; false if it cannot be had.
bool OpenRootAt(const std::string& name);

struct Transfer {
  int peer;
  bool sends;
  void* data;
  size_t bytes;
};

class Mesh {
 public:
  ~Mesh();

  // Waits until all ranks have come, at most HCCL_CONNECT_TIMEOUT seconds. `host`: this host's
  // address, or empty where all ranks are on one host.
  bool Connect(const std::string& root_name, const std::string& host, int rank, int size,
               std::string* error);
  const std::string& host() const { return host_; }

  // Moves everything at once, in list order per peer and direction, until HCCL_EXEC_TIMEOUT: -1,
  // or the peer that is gone or late.
  int Exchange(std::vector<Transfer> transfers);
  // For hosts, until HCCL_CONNECT_TIMEOUT; false when the peer is gone or late.
  bool Tell(int peer, const void* data, size_t bytes);
  bool Hear(int peer, void* data, size_t bytes);
  void Close();

 private:
  bool Meet(const std::string& root_name, int rank, int size, double deadline);
  bool ConnectPeers(int rank, int size, double deadline);

  enum Channel { kStreams, kHosts, kNumChannels };

  std::string host_;
  std::vector<int> sockets_[kNumChannels];  // by rank; -1 for the own one
  std::vector<std::string> names_;
  int listener_ = -1;
};

}  // namespace collops_sim
