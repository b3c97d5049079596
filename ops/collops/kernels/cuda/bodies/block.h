#pragma once

#include <cstdint>

#if !defined(__CUDACC__)
#include <cstddef>
#include <vector>
#endif

// Marks the functions of which kernels are made. nvcc compiles them for the device; a C++ compiler
// compiles the same source for the tests and for the simulated device.
#if defined(__CUDACC__)
#define COLLOPS_DEVICE __host__ __device__
#else
#define COLLOPS_DEVICE
#endif

// A function that is called, and not written down again, in several places of a kernel.
#if defined(__CUDACC__)
#define COLLOPS_CALLED __noinline__
#else
#define COLLOPS_CALLED
#endif

// Before a loop whose number of rounds is known only when it runs: nvcc would write its body down
// several times, and one copy of each is what takes it long.
#if defined(__CUDACC__)
#define COLLOPS_ROLLED _Pragma("unroll 1")
#else
#define COLLOPS_ROLLED
#endif

// Before a loop that is written down once for each round, so that what it indexes is in registers.
#if defined(__CUDACC__)
#define COLLOPS_UNROLLED _Pragma("unroll")
#else
#define COLLOPS_UNROLLED
#endif

namespace collops::cuda {

// The body of a kernel is a function of its arguments and of the block that runs it:
//
//   template <class Block>
//   COLLOPS_DEVICE void ReduceSlices(const ReduceSlicesArgs& args, Block& block);
//
// It is a sequence of phases: Each(f) runs f(thread) for every thread of the block, and Sync() lies
// between two phases of which the later one reads what another thread wrote in the earlier one.
// All(f) is whether f(thread) is true for every thread, and FromOne(f) what f() is in one of them;
// both also do what Sync() does. Table() and Stages() are memory that the threads of a block share;
// a PerThread<T>[thread] is a thread's own, kept from one phase to the next. Outside of Each, All
// and FromOne, all threads of a block take the same way.
inline constexpr uint32_t kTableWords = 96;
inline constexpr uint32_t kStagesBytes = 32 * 1024;
// Threads that run together: what they load side by side is one request.
inline constexpr uint32_t kWarpThreads = 32;

#if defined(__CUDACC__)

// The block of the running kernel. A grid has one dimension.
class DeviceBlock {
 public:
  __device__ uint32_t index() const { return blockIdx.x; }
  __device__ uint32_t count() const { return gridDim.x; }
  __device__ uint32_t threads() const { return blockDim.x; }
  template <class F>
  __device__ void Each(F f) {
    f(threadIdx.x);
  }
  __device__ void Sync() { __syncthreads(); }
  template <class F>
  __device__ bool All(F f) {
    return __syncthreads_and(f(threadIdx.x)) != 0;
  }
  template <class F>
  __device__ auto FromOne(F f) {
    __shared__ decltype(f()) value;
    if (threadIdx.x == 0) value = f();
    __syncthreads();
    const auto found = value;
    __syncthreads();
    return found;
  }
  __device__ uint64_t* Table() {
    __shared__ uint64_t table[kTableWords];
    return table;
  }
  __device__ void* Stages() {
    __shared__ alignas(16) unsigned char stages[kStagesBytes];
    return stages;
  }
  template <class T>
  struct PerThread {
    __device__ explicit PerThread(const DeviceBlock&) {}
    __device__ T& operator[](uint32_t) { return own; }
    T own;
  };
};

#else

// A block on a CPU: one thread of the CPU runs all threads of the block, one after another.
class HostBlock {
 public:
  HostBlock(uint32_t index, uint32_t count, uint32_t threads)
      : index_(index), count_(count), threads_(threads) {}

  uint32_t index() const { return index_; }
  uint32_t count() const { return count_; }
  uint32_t threads() const { return threads_; }
  template <class F>
  void Each(F f) {
    for (uint32_t thread = 0; thread < threads_; ++thread) f(thread);
  }
  void Sync() {}  // every Each has ended for all threads
  template <class F>
  bool All(F f) {
    bool all = true;
    for (uint32_t thread = 0; thread < threads_; ++thread) all &= f(thread);
    return all;
  }
  template <class F>
  auto FromOne(F f) {
    return f();
  }
  uint64_t* Table() { return table_; }
  void* Stages() {
    if (stages_.empty()) stages_.resize(kStagesBytes / sizeof(std::max_align_t));
    return stages_.data();
  }
  template <class T>
  struct PerThread {
    explicit PerThread(const HostBlock& block) : all(block.threads()) {}
    T& operator[](uint32_t thread) { return all[thread]; }
    std::vector<T> all;
  };

 private:
  uint32_t index_;
  uint32_t count_;
  uint32_t threads_;
  uint64_t table_[kTableWords];
  std::vector<std::max_align_t> stages_;
};

#endif

// A block in the place of another one: it takes the work of number `index` of `count`.
template <class Block>
class Worker {
 public:
  COLLOPS_DEVICE Worker(Block& block, uint32_t index, uint32_t count)
      : block_(block), index_(index), count_(count) {}

  COLLOPS_DEVICE uint32_t index() const { return index_; }
  COLLOPS_DEVICE uint32_t count() const { return count_; }
  COLLOPS_DEVICE uint32_t threads() const { return block_.threads(); }
  template <class F>
  COLLOPS_DEVICE void Each(F f) {
    block_.Each(f);
  }
  COLLOPS_DEVICE void Sync() { block_.Sync(); }
  template <class F>
  COLLOPS_DEVICE bool All(F f) {
    return block_.All(f);
  }
  template <class F>
  COLLOPS_DEVICE auto FromOne(F f) {
    return block_.FromOne(f);
  }
  COLLOPS_DEVICE uint64_t* Table() { return block_.Table(); }

 private:
  Block& block_;
  uint32_t index_;
  uint32_t count_;
};

// What a thread begins with, and what it skips, where the threads of a grid take items in turn.
template <class Block>
COLLOPS_DEVICE int64_t FirstOf(const Block& block, uint32_t thread) {
  return static_cast<int64_t>(block.index()) * block.threads() + thread;
}
template <class Block>
COLLOPS_DEVICE int64_t StepOf(const Block& block) {
  return static_cast<int64_t>(block.count()) * block.threads();
}

}  // namespace collops::cuda
