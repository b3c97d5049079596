// A group of threads grows by threads, while other ranks are a step behind; TSan sees all of it.
#include <thread>

#include "collops/comm/communicator.h"
#include "collops/comm/registry.h"
#include "ranks.h"

namespace {

using collops::Communicator;
using collops::CommunicatorSpec;

constexpr int kMembers = 2;
constexpr int kSize = 4;

CommunicatorSpec Spec() {
  CommunicatorSpec spec;
  spec.backend = "shm";
  spec.comm_domain = ranks::FreshJob().id;
  spec.comm_mode = collops::COMM_MULTI_THREAD;
  spec.timeout_s = check::Patience(20.0);
  return spec;
}

// What a thread does, the members from a group of their own.
void Live(CommunicatorSpec spec, int thread) {
  std::shared_ptr<Communicator> comm;
  if (thread < kMembers) {
    spec.rank = thread;
    spec.rank_size = kMembers;
    std::shared_ptr<Communicator> old;
    EXPECT_EQ(collops::Registry::Instance().Get(spec, &old).message(), "");
    EXPECT_EQ(old->Barrier().message(), "");
    EXPECT_EQ(old->Grow(kSize - kMembers, 0, &comm).message(), "");
    EXPECT_TRUE(old->failed());
  } else {
    EXPECT_EQ(Communicator::Join(spec, &comm).message(), "");
  }
  ASSERT_TRUE(comm != nullptr);
  EXPECT_EQ(comm->size(), kSize);
  EXPECT_TRUE(comm->rank() == thread || thread >= kMembers);
  EXPECT_EQ(comm->Barrier().message(), "");
  // No rank's domain is in the way of the new group's.
  spec.rank = comm->rank();
  spec.rank_size = kSize;
  std::shared_ptr<Communicator> found;
  EXPECT_EQ(collops::Registry::Instance().Get(spec, &found).message(), "");
  EXPECT_EQ(found.get(), comm.get());
  EXPECT_EQ(comm->Barrier().message(), "");
  comm->Close("it is through");
}

}  // namespace

TEST(ThreadsJoinAGroupOfThreads) {
  for (int round = 0; round < 20; ++round) {
    const CommunicatorSpec spec = Spec();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kSize; ++thread) {
      threads.emplace_back([&spec, thread] { Live(spec, thread); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}
