// Memory and copies of a simulated libcuda, from its published signatures.
#include <unistd.h>

#include <cstring>

#include "collops/kernels/cuda/driver.h"
#include "driver/capture.h"
#include "driver/context.h"
#include "driver/memory.h"
#include "driver/openers.h"
#include "driver/stream.h"

using collops::cuda::DevicePointer;
using collops_sim::Allocation;
using collops_sim::CurrentContext;
using collops_sim::Enter;
using collops_sim::Find;
using collops_sim::HostView;
using collops_sim::kInvalidValue;
using collops_sim::MemoryType;
using collops_sim::Mistake;
using collops_sim::PointerAttribute;
using collops_sim::Refuse;
using collops_sim::Result;
using collops_sim::Stream;

namespace {

constexpr unsigned kCall = collops_sim::kNeedsInit | collops_sim::kNeedsContext;
constexpr unsigned kSlowCall = kCall | collops_sim::kIsUnsafe | collops_sim::kMayWait;

Result FreeOf(Allocation::Kind kind, uint64_t pointer) {
  if (pointer == 0) return Result::kSuccess;
  if (Find(pointer, 0).kind != kind || Find(pointer, 0).begin != pointer) {
    return Refuse(kInvalidValue, "there is no such allocation");
  }
  const Allocation found = Find(pointer, 0);
  const bool shared = kind == Allocation::kDevice;
  if (const int opener = shared ? collops_sim::FindOpener(found.file, found.page_bytes) : 0) {
    Mistake("memory is freed that process " + std::to_string(opener) + " has open");
    return kInvalidValue;
  }
  bool in_use = false;
  const Allocation removed = collops_sim::Remove(pointer, &in_use);
  if (in_use) {
    Mistake("memory is freed that a stream has yet to use");
    return kInvalidValue;
  }
  collops_sim::UnmapPages(removed.pages, removed.page_bytes);
  close(removed.file);
  return Result::kSuccess;
}

// A copy's or a fill's end that is on a GPU.
Result CheckEnd(DevicePointer pointer, size_t bytes) {
  const Allocation found = Find(pointer, bytes);
  if (bytes == 0 || found.kind != Allocation::kNothing) {
    if (found.accessible) return Result::kSuccess;
    return Refuse(kInvalidValue, "cuMemSetAccess has not been called for these bytes");
  }
  return Refuse(kInvalidValue,
                std::to_string(bytes) + " bytes are not all in one device allocation");
}

// An unpinned host buffer of an asynchronous copy is read or written at once, as CUDA may do.
Result Copy(uint64_t to, uint64_t from, size_t bytes, void* handle) {
  Stream* stream = nullptr;
  const Result result = collops_sim::FindHere(handle, &stream);
  if (result != Result::kSuccess) return result;
  return stream->Enqueue(
      [=] {
        std::memmove(HostView(to), HostView(from), bytes);
        return Result::kSuccess;
      },
      {reinterpret_cast<void*>(to), reinterpret_cast<void*>(from)});
}

bool IsPageable(const void* host, size_t bytes) {
  return Find(reinterpret_cast<uint64_t>(host), bytes).kind == Allocation::kNothing;
}

template <class T>
Result Fill(const char* name, DevicePointer to, T value, size_t count, void* handle) {
  Result result = Enter(name, kCall);
  if (result == Result::kSuccess) result = CheckEnd(to, count * sizeof(T));
  if (result != Result::kSuccess) return result;
  if (to % sizeof(T) != 0) return Refuse(kInvalidValue, "the address is not aligned");
  Stream* stream = nullptr;
  result = collops_sim::FindHere(handle, &stream);
  if (result != Result::kSuccess) return result;
  return stream->Enqueue(
      [=] {
        auto* const first = static_cast<T*>(HostView(to));
        std::fill(first, first + count, value);
        return Result::kSuccess;
      },
      {reinterpret_cast<void*>(to)});
}

}  // namespace

extern "C" {

Result cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  const Result result = Enter("cuMemGetInfo_v2", kCall);
  if (result != Result::kSuccess) return result;
  *total_bytes = collops_sim::DeviceBytes();
  *free_bytes = *total_bytes - collops_sim::UsedBytes(CurrentContext()->device);
  return Result::kSuccess;
}

Result cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
  Result result = Enter("cuMemAlloc_v2", kSlowCall);
  if (result != Result::kSuccess) return result;
  if (bytes == 0) return Refuse(kInvalidValue, "cuMemAlloc of 0 bytes");
  Allocation made;
  result = collops_sim::Allocate(bytes, CurrentContext()->device, &made);
  if (result == Result::kSuccess) *pointer = made.begin;
  return result;
}
Result cuMemFree_v2(DevicePointer pointer) {
  const Result result = Enter("cuMemFree_v2", kSlowCall);
  return result == Result::kSuccess ? FreeOf(Allocation::kDevice, pointer) : result;
}

// Kernels add their shift to its addresses, too: it is mapped where the host looks and behind.
Result cuMemHostAlloc(void** pointer, size_t bytes, unsigned int) {
  const Result result = Enter("cuMemHostAlloc", kSlowCall);
  if (result != Result::kSuccess) return result;
  if (bytes == 0) return Refuse(kInvalidValue, "cuMemHostAlloc of 0 bytes");
  Allocation made;
  made.kind = Allocation::kPinned;
  made.bytes = bytes;
  made.device = collops_sim::kHostDevice;
  made.page_bytes = collops_sim::PagesOf(bytes);
  made.begin = made.pages = collops_sim::TakeAddresses(made.page_bytes, collops_sim::kPage);
  made.file = collops_sim::NewFile(made.page_bytes, made.device);
  if (made.file < 0 ||
      !collops_sim::MapPages(made.pages, made.page_bytes, made.file, 0, true, true)) {
    return Result::kOutOfMemory;
  }
  collops_sim::Insert(made);
  *pointer = reinterpret_cast<void*>(made.begin);
  return Result::kSuccess;
}
Result cuMemFreeHost(void* pointer) {
  const Result result = Enter("cuMemFreeHost", kSlowCall);
  if (result != Result::kSuccess) return result;
  return FreeOf(Allocation::kPinned, reinterpret_cast<uint64_t>(pointer));
}
Result cuMemHostGetDevicePointer_v2(DevicePointer* pointer, void* host, unsigned int) {
  const Result result = Enter("cuMemHostGetDevicePointer_v2", kCall);
  if (result != Result::kSuccess) return result;
  *pointer = reinterpret_cast<DevicePointer>(host);
  if (Find(*pointer, 0).kind == Allocation::kPinned) return Result::kSuccess;
  return Refuse(kInvalidValue, "this is no memory of cuMemHostAlloc");
}

// For torch, which asks for two of them.
Result cuPointerGetAttribute(void* data, PointerAttribute attribute, DevicePointer pointer) {
  const Result result = Enter("cuPointerGetAttribute", collops_sim::kNeedsInit);
  if (result != Result::kSuccess) return result;
  const Allocation found = Find(pointer, 0);
  if (found.kind == Allocation::kNothing) {
    return Refuse(kInvalidValue, "CUDA does not know this address");
  }
  const bool is_pinned = found.kind == Allocation::kPinned;
  if (attribute == PointerAttribute::kMemoryType) {
    *static_cast<MemoryType*>(data) = is_pinned ? MemoryType::kHost : MemoryType::kDevice;
    return result;
  }
  if (attribute == PointerAttribute::kDeviceOrdinal) {
    *static_cast<int*>(data) = std::max(found.device, 0);
    return result;
  }
  return Refuse(kInvalidValue, "the simulation does not know this attribute");
}

Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, void* stream) {
  Result result = Enter("cuMemcpyHtoDAsync_v2", kCall);
  if (result == Result::kSuccess) result = CheckEnd(to, bytes);
  if (result != Result::kSuccess) return result;
  if (!IsPageable(from, bytes)) return Copy(to, reinterpret_cast<uint64_t>(from), bytes, stream);
  Stream* found = nullptr;
  result = collops_sim::FindHere(stream, &found);
  if (result != Result::kSuccess) return result;
  if (found->IsCapturing()) {
    return collops_sim::RefuseInCapture(found, "a copy of pageable memory");
  }
  const auto* const first = static_cast<const char*>(from);
  auto staged = std::make_shared<std::vector<char>>(first, first + bytes);
  return found->Enqueue(
      [=] {
        std::memcpy(HostView(to), staged->data(), bytes);
        return Result::kSuccess;
      },
      {reinterpret_cast<void*>(to)});
}
Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, void* stream) {
  Result result = Enter("cuMemcpyDtoHAsync_v2", kCall);
  if (result == Result::kSuccess) result = CheckEnd(from, bytes);
  if (result != Result::kSuccess) return result;
  const bool pageable = IsPageable(to, bytes);
  Stream* found = nullptr;
  result = collops_sim::FindHere(stream, &found);
  if (result == Result::kSuccess && pageable && found->IsCapturing()) {
    return collops_sim::RefuseInCapture(found, "a copy to pageable memory");
  }
  if (result == Result::kSuccess) {
    result = Copy(reinterpret_cast<uint64_t>(to), from, bytes, stream);
  }
  // Pageable memory is full when the call returns.
  return result == Result::kSuccess && pageable ? Synchronize(found) : result;
}
// With unified addresses, an end that is no GPU's is the host's.
Result cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes, void* stream) {
  Result result = Enter("cuMemcpyAsync", kCall);
  if (result != Result::kSuccess) return result;
  if (!collops_sim::IsDeviceAddress(from)) {
    return cuMemcpyHtoDAsync_v2(to, reinterpret_cast<void*>(from), bytes, stream);
  }
  if (!collops_sim::IsDeviceAddress(to)) {
    return cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(to), from, bytes, stream);
  }
  result = CheckEnd(to, bytes);
  if (result == Result::kSuccess) result = CheckEnd(from, bytes);
  return result == Result::kSuccess ? Copy(to, from, bytes, stream) : result;
}
// With these two the host waits: for tests, which need no stream then.
Result cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
  Result result = cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
  Stream* stream = nullptr;
  if (result == Result::kSuccess) result = collops_sim::FindHere(nullptr, &stream);
  return result == Result::kSuccess ? Synchronize(stream) : result;
}
Result cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
  return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
}
Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t count, void* stream) {
  return Fill<unsigned char>("cuMemsetD8Async", to, value, count, stream);
}
Result cuMemsetD32Async(DevicePointer to, unsigned int value, size_t count, void* stream) {
  return Fill<unsigned int>("cuMemsetD32Async", to, value, count, stream);
}

}  // extern "C"
