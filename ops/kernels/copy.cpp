#include "kernels/copy.h"

#include <cstddef>
#include <cstring>

namespace collops::kernels {
namespace {

thread_local uint64_t copied_bytes = 0;

}  // namespace

void Copy(void* destination, const void* source, int64_t bytes) {
  if (bytes <= 0) return;  // an empty tensor's address may be null, which memcpy does not take
  std::memcpy(destination, source, static_cast<size_t>(bytes));
  copied_bytes += static_cast<uint64_t>(bytes);
}

void Zero(void* destination, int64_t bytes) {
  if (bytes <= 0) return;
  std::memset(destination, 0, static_cast<size_t>(bytes));
}

uint64_t CopiedBytes() {
  return copied_bytes;
}

}  // namespace collops::kernels
