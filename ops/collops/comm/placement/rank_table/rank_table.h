#pragma once

#include <string>
#include <vector>

namespace collops {

// What an HCCL rank table says: which ranks there are, and on which server and device each runs.
struct RankTable {
  struct Server {
    std::string id;       // "server_id"
    std::string host_ip;  // where the server is reached; may be empty
    std::string super_pod_id;
  };
  struct Rank {
    int server = 0;  // index into servers
    int device_id = 0;
    std::string device_ip;
    std::string super_device_id;
    std::string pod_name;  // of the format without a version
  };

  std::string path;
  std::string file;    // for messages: rank table "/etc/hccl.json"
  std::string digest;  // of the text: the same on every host that has the same table
  std::string version;
  bool completed = false;  // false: whoever writes the table is not done, and the rest is empty
  std::vector<Server> servers;
  std::vector<Rank> ranks;  // in the order of their numbers
};

}  // namespace collops
