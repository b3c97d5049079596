// Descriptors that owners of one process share, and how few ranks that are threads need.
#include "collops/comm/control/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "collops/comm/control/first_contact/local_socket.h"
#include "proc.h"
#include "ranks.h"

namespace {

using collops::control::SharedFd;
using collops::control::SocketPair;
using collops::control::UniqueFd;

bool IsOpen(int fd) {
  return fcntl(fd, F_GETFD) != -1;
}

// The descriptors that so many thread ranks have open in a call.
int DescriptorsOf(int rank_size) {
  const collops::JobIdentity job = ranks::FreshJob();
  const int before = proc::NumDescriptors();
  std::vector<std::shared_ptr<collops::Communicator>> comms(static_cast<size_t>(rank_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_size; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm =
          ranks::Make(job, rank, rank_size, check::Patience(20.0), collops::COMM_MULTI_THREAD);
      EXPECT_EQ(comm->Barrier().message(), "");
      comms[static_cast<size_t>(rank)] = std::move(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return proc::NumDescriptors() - before;
}

}  // namespace

TEST(DescriptorsOfOneSocketAreOne) {
  UniqueFd first;
  UniqueFd second;
  ASSERT_EQ(SocketPair(&first, &second).message(), "");
  const int other = dup(first.get());
  const int open = first.get();
  SharedFd shared = SharedFd::OfSocket(std::move(first));
  SharedFd again = SharedFd::OfSocket(UniqueFd(other));
  EXPECT_EQ(shared.get(), open);
  EXPECT_EQ(again.get(), open);
  EXPECT_FALSE(IsOpen(other));
  const SharedFd others = SharedFd::OfSocket(std::move(second));
  EXPECT_TRUE(others.get() != open);
  shared.reset();
  EXPECT_FALSE(shared.valid());
  EXPECT_TRUE(IsOpen(open));
  again.reset();
  EXPECT_FALSE(IsOpen(open));
}

TEST(TheDescriptorsOfThreadsGrowWithTheirNumber) {
  const int of_8 = DescriptorsOf(8);
  const int of_16 = DescriptorsOf(16);
  const int of_32 = DescriptorsOf(32);
  std::printf("  descriptors of 8, 16, 32 threads: %d, %d, %d\n", of_8, of_16, of_32);
  // So many more for each of 16 ranks as for each of 8, and a few.
  EXPECT_TRUE(of_32 - of_16 <= 2 * (of_16 - of_8) + 4);
  EXPECT_TRUE(of_32 < 6 * 32);
}
