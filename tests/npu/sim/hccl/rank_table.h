#pragma once

#include <string>
#include <vector>

// Rank tables of version 1.0 and 1.2, read as strictly as HCCL documents them.
namespace collops_sim {

struct RankTable {
  struct Entry {
    int device = 0;
    size_t server = 0;
  };

  std::vector<Entry> ranks;
  std::vector<std::string> hosts;  // by server: its IPv4 address, or empty
  std::string digest;              // of the file's path and text

  // kSuccess, or HcclResult's number, reported. Reads again while the table is being written.
  int Read(const char* path);
};

}  // namespace collops_sim
