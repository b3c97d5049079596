#pragma once

#include <string>
#include <vector>

#include "collops/core/status.h"

namespace collops {

// The bytes of an IPv4 (4) or IPv6 (16) address, so that two spellings are equal.
using HostAddress = std::string;

// False for what is no address, such as a host's name.
bool ParseAddress(const std::string& text, HostAddress* address);

// What an HCCL rank table says: which ranks there are, and on which server and device each runs.
struct RankTable {
  struct Server {
    std::string id;                 // "server_id"
    std::string host_ip;            // where the server is reached; may be empty
    std::string super_pod_id;       // empty: the table has no super pods
    std::string container_ip = "";  // of a pod of Kubernetes, whose host_ip is its node's

    // Where ranks of other servers reach those of this one; may be a name.
    const std::string& address() const {
      return !container_ip.empty() ? container_ip : host_ip.empty() ? id : host_ip;
    }
  };
  struct Rank {
    int server = 0;               // index into servers
    int device_id = 0;            // the physical number on that server
    std::string device_ip;        // several are "172.30.1.10,172.30.2.10"
    std::string super_device_id;  // empty: not given
    std::string pod_name;         // of the format without a version
  };

  std::string path;
  std::string file;    // for messages: rank table "/etc/hccl.json"
  std::string digest;  // of the text: the same on every host that has the same table
  std::string version;
  bool completed = false;  // false: whoever writes the table is not done, and the rest is empty
  std::vector<Server> servers;
  std::vector<Rank> ranks;  // in the order of their numbers
  // The first rule of the format that the table breaks and HCCL's loader does not know: what every
  // other backend says of the table.
  Status format_fault;
};

// Reads a table of version 1.0, 1.1, 1.2, 2.0 or none (group_list). An error gives the file, the
// place in the JSON text, the value and the rule; it holds for every backend, and there are rules
// of single backends besides (CheckTableFor). Waits for nothing, whatever the file is.
Status ReadRankTable(const std::string& path, RankTable* table);

// The same of a text; `path` names it in messages.
Status ParseRankTable(const std::string& text, const std::string& path, RankTable* table);

namespace rank_table {

// An error of what is no regular file that can be read; `name` begins the message.
Status CheckTableFile(const std::string& path, const std::string& name);

// Reads a regular file, or a link to one, that is no larger than any rank table. Never waits: what
// is no regular file (a pipe, a device, a folder) is refused before it is read.
Status ReadTableFile(const std::string& path, const std::string& name, std::string* text);

}  // namespace rank_table

}  // namespace collops
