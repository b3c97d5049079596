#include "collops/kernels/copy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "check.h"
#include "collops/kernels/thread_pool.h"

namespace {

// Before anything reads it.
[[maybe_unused]] const int set = setenv("COLLOPS_TUNING", "streamed_output=3m", 1);

using collops::kernels::CopiedBytes;
using collops::kernels::Copy;
using collops::kernels::ForceNumThreads;
using collops::kernels::StreamedOutputBytes;
using collops::kernels::Zero;

// Not periodic with the size of a copy's parts.
uint8_t NumberAt(size_t i) {
  return static_cast<uint8_t>((i * 7 + 1) ^ (i >> 8) ^ (i >> 16));
}

std::vector<uint8_t> Numbered(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = NumberAt(i);
  return data;
}

}  // namespace

TEST(CopyMovesExactlyItsBytes) {
  for (const size_t bytes : {size_t{1}, size_t{7}, size_t{4099}}) {
    const std::vector<uint8_t> source = Numbered(bytes + 1);
    std::vector<uint8_t> destination(bytes + 2, 0xee);
    Copy(destination.data() + 1, source.data() + 1, static_cast<int64_t>(bytes));
    std::vector<uint8_t> want(source.begin(), source.end());
    want.front() = 0xee;
    want.push_back(0xee);
    EXPECT_EQ(destination, want);
  }
}

// As a part of a large vector, at addresses of every alignment, with one thread and with several.
TEST(LargeCopiesMoveExactlyTheirBytes) {
  for (const size_t bytes : {size_t{63}, size_t{200}, size_t{4099}, size_t{3000001}}) {
    const std::vector<uint8_t> source = Numbered(bytes + 64);
    for (const size_t shift : {size_t{0}, size_t{1}, size_t{63}}) {
      for (const int num_threads : {1, 3}) {
        ForceNumThreads(num_threads);
        std::vector<uint8_t> destination(bytes + 128, 0xee);
        std::vector<uint8_t> want = destination;
        std::copy_n(source.begin() + 5, bytes, want.begin() + static_cast<ptrdiff_t>(shift));
        const uint64_t before = CopiedBytes();
        Copy(destination.data() + shift, source.data() + 5, static_cast<int64_t>(bytes),
             StreamedOutputBytes());
        EXPECT_TRUE(destination == want);
        EXPECT_EQ(CopiedBytes() - before, bytes);
      }
    }
  }
  ForceNumThreads(1);
}

TEST(ZeroClearsExactlyItsBytes) {
  std::vector<uint8_t> data = Numbered(9);
  Zero(data.data() + 1, 7);
  std::vector<uint8_t> want(9, 0);
  want.front() = 1;
  want.back() = NumberAt(8);
  EXPECT_EQ(data, want);
}

TEST(NothingToDoTakesNullAddresses) {
  const uint64_t before = CopiedBytes();
  Copy(nullptr, nullptr, 0);
  Zero(nullptr, 0);
  EXPECT_EQ(CopiedBytes(), before);
}

TEST(CopiedBytesCountsCopiesOfThisThread) {
  const uint64_t before = CopiedBytes();
  const std::vector<uint8_t> source = Numbered(100);
  std::vector<uint8_t> destination(100);
  Copy(destination.data(), source.data(), 100);
  Copy(destination.data(), source.data(), 23);
  Zero(destination.data(), 50);
  uint64_t counted_by_thread = 0;
  std::thread([&] {
    Copy(destination.data(), source.data(), 5);
    counted_by_thread = CopiedBytes();
  }).join();
  EXPECT_EQ(CopiedBytes() - before, uint64_t{123});
  EXPECT_EQ(counted_by_thread, uint64_t{5});
}

// The process reads the size once.
TEST(TheTableSaysFromWhichSizeOnOutputsAreStreamed) {
  const int64_t bytes = StreamedOutputBytes();
  EXPECT_EQ(bytes, 3 << 20);
  setenv("COLLOPS_TUNING", "streamed_output=5m", 1);
  EXPECT_EQ(StreamedOutputBytes(), bytes);
}
