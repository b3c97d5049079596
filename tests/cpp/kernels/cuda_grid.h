// Runs the body of a kernel on the CPU: as many blocks at once as are drawn, each in a thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "collops/kernels/cuda/bodies/block.h"

namespace cuda_grid {

struct Grid {
  uint32_t blocks;
  uint32_t threads;
  uint32_t at_once;
};

inline Grid DrawGrid(std::mt19937_64& random) {
  const uint32_t blocks = 1 + static_cast<uint32_t>(random() % 4);
  const uint32_t threads = 32u << random() % 3;
  return {blocks, threads, 1 + static_cast<uint32_t>(random() % blocks)};
}

// body(block) for every block of the grid; another block begins when one ends.
template <class Body>
void Run(const Grid& grid, const Body& body) {
  std::atomic<uint32_t> next{0};
  const auto work = [&] {
    for (uint32_t index = next++; index < grid.blocks; index = next++) {
      collops::cuda::HostBlock block(index, grid.blocks, grid.threads);
      body(block);
    }
  };
  if (grid.at_once == 1) return work();
  std::vector<std::thread> workers;
  for (uint32_t i = 0; i < grid.at_once; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
}

}  // namespace cuda_grid
