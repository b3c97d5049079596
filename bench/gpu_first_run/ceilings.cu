// What the memory of GPU 0 can do, in GB/s and in microseconds for the bytes of an AllGatherV of 8
// ranks and 64 MiB: a copy, a fill, and one read for 1 to 8 writes. JSON, a line for each.
//
//     nvcc -O3 -arch=native -o ceilings ceilings.cu && ./ceilings

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr int kMostWrites = 8;
constexpr int kThreads = 512;
constexpr int kRounds = 15;
constexpr int kCalls = 20;

void Check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

// Each thread has four loads under way.
template <int kWrites>
__global__ void ReadOnce(const uint4* from, uint4* to, size_t count) {
  constexpr int kAhead = 4;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const size_t first = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (size_t i = first; i < count; i += kAhead * threads) {
    uint4 kept[kAhead];
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      if (i + ahead * threads < count) kept[ahead] = __ldcs(from + i + ahead * threads);
    }
#pragma unroll
    for (int write = 0; write < kWrites; ++write) {
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const size_t at = i + ahead * threads;
        if (at < count) __stcs(to + write * count + at, kept[ahead]);
      }
    }
  }
}

// The median of a call's time, in microseconds, of several calls in a graph.
template <typename Call>
double Median(cudaStream_t stream, Call&& call) {
  cudaGraph_t graph;
  cudaGraphExec_t replayed;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < kCalls; ++i) call();
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  Check(cudaGraphInstantiate(&replayed, graph, 0), "graph");
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int round = -2; round < kRounds; ++round) {
    Check(cudaEventRecord(begin, stream), "event");
    Check(cudaGraphLaunch(replayed, stream), "launch");
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaStreamSynchronize(stream), "wait");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (round >= 0) times.push_back(ms);
  }
  Check(cudaGraphExecDestroy(replayed), "graph");
  Check(cudaGraphDestroy(graph), "graph");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1e3 / kCalls;
}

void Say(const char* name, int writes, double us, double bytes) {
  std::printf("{\"ceiling\": \"%s\", \"writes\": %d, \"us\": %.2f, \"gbps\": %.0f}\n", name, writes,
              us, bytes / us * 1e-3);
}

template <int kWrites>
void SayWrites(cudaStream_t stream, const uint4* from, uint4* to, int blocks) {
  const size_t count = kBytes / sizeof(uint4);
  const double us = Median(
      stream, [&] { ReadOnce<kWrites><<<blocks, kThreads, 0, stream>>>(from, to, count); });
  Check(cudaGetLastError(), "kernel");
  Say("one read", kWrites, us, double(kBytes) * (1 + kWrites));
}

}  // namespace

int main() {
  int multiprocessors = 0;
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "device");
  cudaStream_t stream;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  char* from = nullptr;
  char* to = nullptr;
  Check(cudaMalloc(&from, kMostWrites * kBytes), "memory");
  Check(cudaMalloc(&to, kMostWrites * kBytes), "memory");
  Check(cudaMemset(from, 1, kMostWrites * kBytes), "fill");
  // As many bytes as the gather reads and writes: (P + 1) * S.
  const size_t half = (kMostWrites + 1) * kBytes / 2;
  Say("copy", 1, Median(stream, [&] {
        Check(cudaMemcpyAsync(to, from, half, cudaMemcpyDeviceToDevice, stream), "copy");
      }),
      2.0 * half);
  Say("fill", 1, Median(stream, [&] {
        Check(cudaMemsetAsync(to, 7, kMostWrites * kBytes, stream), "fill");
      }),
      double(kMostWrites) * kBytes);
  const auto* const source = reinterpret_cast<const uint4*>(from);
  auto* const target = reinterpret_cast<uint4*>(to);
  const int blocks = 2 * multiprocessors;
  SayWrites<1>(stream, source, target, blocks);
  SayWrites<2>(stream, source, target, blocks);
  SayWrites<4>(stream, source, target, blocks);
  SayWrites<6>(stream, source, target, blocks);
  SayWrites<8>(stream, source, target, blocks);
  return 0;
}
