#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Rank tables of version 1.0, 1.2 and 2.0, read as hcomm's loader does, which depends on the SoC.
namespace collops_sim {

struct RankTable {
  struct Entry {
    int device = 0;
    size_t server = 0;
    int rank = 0;
  };

  std::vector<Entry> ranks;
  std::vector<std::string> hosts;  // by server: its IPv4 address, or empty
  std::string digest;              // of the file's path and text

  // Both: kSuccess, or HcclResult's number, reported.
  // The file, read again while its status is another than "completed".
  int Load(const char* path);
  // What it says, to rank `own` on a device that has that physical number.
  int Read(uint32_t own, int device);

 private:
  std::string file_;
  std::string text_;
};

}  // namespace collops_sim
