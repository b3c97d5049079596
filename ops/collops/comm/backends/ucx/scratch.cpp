#include "collops/comm/backends/ucx/scratch.h"

#include <new>

namespace collops::ucx {
namespace {

constexpr std::align_val_t kAlignment{4096};

}  // namespace

Status Scratch::Reserve(int64_t bytes) {
  if (bytes <= bytes_) return Ok();
  Free();
  void* const data = ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow);
  COLLOPS_CHECK_ARG(data != nullptr, ERROR_OUT_OF_HOST_MEMORY, "this process cannot allocate ",
                    bytes, " bytes of memory for the slices of other ranks");
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  return Ok();
}

void Scratch::Trim() {
  if (bytes_ > kMostKeptBytes) Free();
}

void Scratch::Free() {
  ::operator delete(data_, kAlignment);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace collops::ucx
