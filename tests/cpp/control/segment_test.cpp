// Shared memory from a peer: a file whose memory could be taken away again is not mapped.
#include "collops/comm/control/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "check.h"

namespace {

using collops::Status;
using collops::control::Segment;
using collops::control::UniqueFd;

constexpr int64_t kBytes = 1 << 16;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

UniqueFd MakeMemory(int seals) {
  UniqueFd fd(memfd_create("segment_test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), kBytes), 0);
  if (seals != 0) EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

void ExpectNotSealed(UniqueFd fd) {
  Segment segment;
  const Status status = Segment::Map(std::move(fd), kBytes, &segment);
  EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), "not sealed in size");
  EXPECT_TRUE(segment.data() == nullptr);
}

}  // namespace

TEST(ASealedSegmentIsMappedOnce) {
  UniqueFd fd = MakeMemory(kSizeSeals);
  UniqueFd again(dup(fd.get()));
  Segment first, second;
  EXPECT_EQ(Segment::Map(std::move(fd), kBytes, &first).message(), "");
  EXPECT_EQ(Segment::Map(std::move(again), kBytes, &second).message(), "");
  EXPECT_TRUE(first.data() == second.data());
}

TEST(MemoryThatItsOwnerCouldShrinkIsRefused) {
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SEAL}) {
    ExpectNotSealed(MakeMemory(seals));
  }
}

// Files on a disk have no seals: fcntl() returns an error.
TEST(APlainFileIsRefused) {
  std::FILE* const file = std::tmpfile();
  ASSERT_TRUE(file != nullptr);
  EXPECT_EQ(ftruncate(fileno(file), kBytes), 0);
  ExpectNotSealed(UniqueFd(dup(fileno(file))));
  std::fclose(file);
}
