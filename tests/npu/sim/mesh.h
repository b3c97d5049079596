#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// How simulated NPUs of several processes reach each other: a socket between every two ranks.
namespace collops_sim {

// What HcclGetRootInfo tells: the name of the socket at which this process gathers the ranks.
std::string OpenRoot();

class Mesh {
 public:
  ~Mesh();

  // Waits until all ranks have come, at most HCCL_CONNECT_TIMEOUT seconds.
  bool Connect(const std::string& root_name, int rank, int size, std::string* error);

  // Both wait until HCCL_EXEC_TIMEOUT; false when the peer is gone or late.
  bool Send(int peer, const void* data, size_t bytes);
  bool Receive(int peer, void* data, size_t bytes);
  void Close();

 private:
  bool Meet(const std::string& root_name, int rank, int size, double deadline);
  bool ConnectPeers(int rank, int size, double deadline);

  std::vector<int> sockets_;  // by rank; -1 for the own one
  std::vector<std::string> names_;
  int listener_ = -1;
};

}  // namespace collops_sim
