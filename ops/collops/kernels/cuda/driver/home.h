#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver/api.h"

namespace collops::cuda {

// Where a rank runs, as the ranks tell each other in first contact.
struct Home {
  int64_t process;        // its pid
  uint64_t process_mark;  // with the pid, no other process of the host has it
  Uuid uuid;              // of its GPU
  int32_t multiprocessors;
};
Status FindHome(const DriverApi& api, int device, Home* home);
bool InOneProcess(const Home& a, const Home& b);
bool OnOneDevice(const Home& a, const Home& b);

// What processes get that share the GPU: whether NVIDIA MPS lets them run at the same time.
bool HasMps(const DriverApi& api, int device);
// What to do without it, for users.
inline constexpr char kWithoutMps[] =
    "the GPU runs one process at a time, which takes milliseconds in every call: make the ranks of "
    "a GPU threads of one process, or start NVIDIA MPS (nvidia-cuda-mps-control -d)";
// Warns, once in a process, of ranks that are processes and share the GPU of `rank`, the first one
// there; `homes` are those of all ranks.
void WarnOfSharing(const DriverApi& api, int device, int rank, const std::vector<Home>& homes);

}  // namespace collops::cuda
