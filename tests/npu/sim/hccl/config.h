#pragma once

#include <cstddef>
#include <cstdint>

// HcclCommConfig, as version 10 of it lies in memory.
namespace collops_sim {

struct Config {
  static constexpr uint32_t kMagic = 0xf0f0f0f0;
  static constexpr uint32_t kVersion = 10;
  static constexpr uint32_t kNotSet = 0xffffffff;

  size_t size;
  uint32_t magic;
  uint32_t version;
  uint64_t reserved;
  uint32_t buffer_size;  // in MB
  uint32_t deterministic;
  char name[128];
  char udi[128];
  uint32_t expansion_mode;
  uint32_t traffic_class;
  uint32_t service_level;
  uint32_t world_rank;
  uint64_t job;
  uint8_t zero_copy;
  int32_t execute_timeout;
  char algorithm[1600];
  char retry_enable[50];
  char retry_parameters[128];
  char buffer_name[128];
  uint32_t qos;
  uint64_t window_size;
};

// kSuccess, or why HCCL would refuse it.
int CheckConfig(const Config* config);
// Equal for configs that are.
uint64_t DigestOf(const Config& config);

}  // namespace collops_sim
