#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/core/status.h"

namespace collops::ucx {

// Memory of this process for calls, kept from one to the next. Its contents are not. One thread;
// waits for no one.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { Free(); }

  // At least so many bytes at data(); ERROR_OUT_OF_HOST_MEMORY if the process can get no more.
  Status Reserve(int64_t bytes);
  // Between calls: gives the memory back if it is more than kMostKeptBytes.
  void Trim();
  void Free();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  static constexpr int64_t kMostKeptBytes = 256 << 20;

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace collops::ucx
