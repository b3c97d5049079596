#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collops/kernels/cuda/bodies/block.h"

#if !defined(__CUDACC__)
#include <thread>
#endif

// All access of a kernel to global memory. An address is a multiple of the access's size.
namespace collops::cuda {

// 16 bytes, which one instruction moves.
struct alignas(16) Wide {
  uint32_t words[4];
};

#if !defined(__CUDACC__)

// Bytes from an address of the simulated device to where the CPU can read and write it: the device
// maps its memory twice, and the mapping at the device's address refuses every access.
inline std::ptrdiff_t host_shift = 0;

// Called by every Pause(), if not null: the simulated device learns here that a kernel waits.
inline void (*on_pause)() = nullptr;

// Ends the process, as the device ends the kernel, if the address is no multiple of `bytes`.
inline void* HostAddress(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) __builtin_trap();
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) +
                                 static_cast<uintptr_t>(host_shift));
}

#endif

// A plain load of 1, 2, 4, 8 or 16 bytes.
template <class T>
COLLOPS_DEVICE T Load(const void* address) {
  static_assert(sizeof(T) <= 16 && alignof(T) == sizeof(T), "one instruction moves a T");
#if defined(__CUDACC__)
  return *static_cast<const T*>(address);
#else
  T value;
  std::memcpy(&value, __builtin_assume_aligned(HostAddress(address, sizeof(T)), sizeof(T)),
              sizeof(T));
  return value;
#endif
}

// A plain store of 1, 2, 4, 8 or 16 bytes.
template <class T>
COLLOPS_DEVICE void Store(void* address, T value) {
  static_assert(sizeof(T) <= 16 && alignof(T) == sizeof(T), "one instruction moves a T");
#if defined(__CUDACC__)
  *static_cast<T*>(address) = value;
#else
  std::memcpy(__builtin_assume_aligned(HostAddress(address, sizeof(T)), sizeof(T)), &value,
              sizeof(T));
#endif
}

// 16 bytes that are loaded once: they do not stay in the L1.
COLLOPS_DEVICE inline Wide LoadOnce(const void* address) {
#if defined(__CUDA_ARCH__)
  Wide value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]),
                 "=r"(value.words[3])
               : "l"(address));
  return value;
#else
  return Load<Wide>(address);
#endif
}

// 16 bytes that nobody loads soon: they are the first that leave the L2.
COLLOPS_DEVICE inline void StoreStreaming(void* address, Wide value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "r"(value.words[0]), "r"(value.words[1]), "r"(value.words[2]),
                 "r"(value.words[3])
               : "memory");
#else
  Store(address, value);
#endif
}

// Signals, of uint32_t or uint64_t, between blocks, devices and hosts: one access moves one. On its
// own it orders nothing else. What was written before a Fence() and a StoreSignal() behind it is
// seen by whoever has loaded the signal and then called Fence(). The host's signals are fences
// themselves.
template <class T>
COLLOPS_DEVICE T LoadSignal(const T* address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a signal has 4 or 8 bytes");
#if defined(__CUDA_ARCH__)
  T value;
  if constexpr (sizeof(T) == 4) {
    asm volatile("ld.relaxed.sys.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  } else {
    asm volatile("ld.relaxed.sys.b64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  }
  return value;
#elif defined(__CUDACC__)
  return *address;  // never runs: nvcc compiles the bodies for a host as well
#else
  return __atomic_load_n(static_cast<const T*>(HostAddress(address, sizeof(T))), __ATOMIC_ACQUIRE);
#endif
}

template <class T>
COLLOPS_DEVICE void StoreSignal(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a signal has 4 or 8 bytes");
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 4) {
    asm volatile("st.relaxed.sys.b32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
  } else {
    asm volatile("st.relaxed.sys.b64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
  }
#elif defined(__CUDACC__)
  *address = value;  // never runs, as above
#else
  __atomic_store_n(static_cast<T*>(HostAddress(address, sizeof(T))), value, __ATOMIC_RELEASE);
#endif
}

// `on_one_gpu`: no other GPU and no host has to see it, which is cheaper.
COLLOPS_DEVICE inline void Fence([[maybe_unused]] bool on_one_gpu) {
#if defined(__CUDA_ARCH__)
  if (on_one_gpu) {
    asm volatile("fence.acq_rel.gpu;" : : : "memory");
  } else {
    asm volatile("fence.acq_rel.sys;" : : : "memory");
  }
#endif
}

// Counts the blocks of a grid; a signal as above.
COLLOPS_DEVICE inline uint32_t CountUp(uint32_t* address) {
#if defined(__CUDA_ARCH__)
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(address)
               : "memory");
  return before;
#elif defined(__CUDACC__)
  return (*address)++;  // never runs, as above
#else
  return __atomic_fetch_add(static_cast<uint32_t*>(HostAddress(address, 4)), 1u, __ATOMIC_ACQ_REL);
#endif
}

// Between two looks at a signal that a thread waits for. A GPU's looks take long themselves.
COLLOPS_DEVICE inline void Pause() {
#if !defined(__CUDACC__)
  if (on_pause != nullptr) on_pause();
  std::this_thread::yield();
#endif
}

}  // namespace collops::cuda
