// Shared memory from a peer: a file whose memory could be taken away again is not mapped.
#include "collops/comm/control/segment.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "check.h"
#include "sanitized.h"

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

#ifndef COLLOPS_SANITIZED
namespace {

// The call that the system denies, and its answer.
std::string denied;
int answer = 0;

bool Denies(const char* call) {
  if (denied != call) return false;
  errno = answer;
  return true;
}

// What has been allocated, and from which core.
struct Allocated {
  int64_t begin;
  int64_t end;
  int cpu;
};
std::vector<Allocated> allocated;

Status CreateWhile(const char* call, int error) {
  denied = call;
  answer = error;
  Segment segment;
  const Status status = Segment::Create(kBytes, &segment);
  denied = "";
  return status;
}

}  // namespace

extern "C" {
int memfd_create(const char* name, unsigned int flags) noexcept {
  if (Denies("memfd_create")) return -1;
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}
int posix_fallocate(int fd, off_t begin, off_t bytes) {
  if (Denies("posix_fallocate")) return answer;
  allocated.push_back({begin, begin + bytes, sched_getcpu()});
  return syscall(SYS_fallocate, fd, 0, begin, bytes) == 0 ? 0 : errno;
}
void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (Denies("mmap")) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
}

// Linux puts a page on the node of the core that asks for it first. The nodes are made up: that of
// rank 1 is another one.
TEST(ARanksPartIsAllocatedFromACoreOfItsNode) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  ASSERT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  int core = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) core = CPU_ISSET(cpu, &usable) ? cpu : core;
  const int node = collops::CpuPlace::Here().node;
  constexpr int64_t kPage = 4096;
  collops::control::SegmentShape shape(3 * kPage, {{kPage, kPage}});
  shape.Append({2 * 6000, {{0, 6000}}});  // the page between two parts is the second's
  allocated.clear();
  Segment segment;
  EXPECT_EQ(Segment::Create(shape, {{core, node}, {core, node + 1}}, &segment).message(), "");
  const auto* const data = static_cast<const std::byte*>(segment.data());
  EXPECT_TRUE(std::all_of(data, data + shape.bytes, [](std::byte b) { return b == std::byte(); }));
  ASSERT_EQ(allocated.size(), size_t{3});
  EXPECT_EQ(allocated[0].begin, 2 * kPage);
  EXPECT_EQ(allocated[0].end, 3 * kPage);
  EXPECT_EQ(allocated[1].begin, 4 * kPage);  // of byte 3 * 4096 + 6000
  EXPECT_EQ(allocated[1].end, 5 * kPage);    // of byte 3 * 4096 + 12000
  EXPECT_EQ(allocated[0].cpu, core);
  EXPECT_EQ(allocated[1].cpu, core);
  EXPECT_EQ(allocated[2].begin, 0);  // the rest, by whoever makes the segment
  EXPECT_EQ(allocated[2].end, shape.bytes);
  // Where all run on one node, nobody is asked.
  allocated.clear();
  EXPECT_EQ(Segment::Create(shape, {{core, node}, {core, node}}, &segment).message(), "");
  EXPECT_EQ(allocated.size(), size_t{1});
  // A core that this process may not use.
  allocated.clear();
  EXPECT_EQ(Segment::Create(shape, {{core, node}, {32767, node + 1}}, &segment).message(), "");
  EXPECT_EQ(allocated.size(), size_t{3});
}

// What a sandbox denies is no lack of memory, and a limit of files is none.
TEST(ADeniedCallIsNoLackOfMemory) {
  for (const char* const call : {"memfd_create", "posix_fallocate", "mmap"}) {
    for (const int error : {ENOSYS, EPERM, EACCES}) {
      const Status status = CreateWhile(call, error);
      EXPECT_EQ(status.code(), collops::ERROR_UNSUPPORTED);
      EXPECT_CONTAINS(status.message(), "seccomp");
      EXPECT_TRUE(status.message().find("limit") == std::string::npos);
    }
    EXPECT_EQ(CreateWhile(call, ENOMEM).code(), collops::ERROR_OUT_OF_HOST_MEMORY);
  }
  EXPECT_EQ(CreateWhile("posix_fallocate", ENOSPC).code(), collops::ERROR_OUT_OF_HOST_MEMORY);
  const Status status = CreateWhile("memfd_create", EMFILE);
  EXPECT_EQ(status.code(), collops::ERROR_RT_FAIL);
  EXPECT_CONTAINS(status.message(), "ulimit -n");
}
#endif
