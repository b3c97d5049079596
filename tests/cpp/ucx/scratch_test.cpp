// The memory that ReduceScatterV keeps between calls.
#include "collops/comm/backends/ucx/communicator.h"

#include "check.h"

using collops::ucx::Scratch;

// Otherwise the sanitizers end a process that asks for too much memory. They find these by name.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

TEST(MemoryIsKeptUpToALimit) {
  Scratch scratch;
  EXPECT_EQ(scratch.Reserve(0).message(), "");
  EXPECT_EQ(scratch.bytes(), 0);
  for (const int64_t bytes : {int64_t{4096}, Scratch::kMostKeptBytes}) {
    EXPECT_EQ(scratch.Reserve(bytes).message(), "");
    std::byte* const data = scratch.data();
    scratch.Trim();
    EXPECT_EQ(scratch.Reserve(bytes - 1).message(), "");
    EXPECT_TRUE(scratch.data() == data);
    EXPECT_EQ(scratch.bytes(), bytes);
  }
  EXPECT_EQ(scratch.Reserve(Scratch::kMostKeptBytes + 1).message(), "");
  scratch.Trim();
  EXPECT_EQ(scratch.bytes(), 0);
}

TEST(TooMuchIsAnErrorAndLessCanBeHadAfterIt) {
  Scratch scratch;
  const collops::Status status = scratch.Reserve(int64_t{1} << 60);
  EXPECT_EQ(status.code(), collops::ERROR_OUT_OF_HOST_MEMORY);
  EXPECT_CONTAINS(status.message(), "1152921504606846976 bytes");
  EXPECT_EQ(scratch.bytes(), 0);
  EXPECT_EQ(scratch.Reserve(1 << 20).message(), "");
  scratch.data()[(1 << 20) - 1] = std::byte{1};
}
