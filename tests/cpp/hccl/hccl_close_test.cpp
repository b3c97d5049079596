// How a rank of hccl meets the others, and how it leaves while its streams still have calls to run.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "collops/comm/backends/hccl/backend.h"
#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/control/control.h"
#include "collops/core/deadline.h"
#include "hccl/slow_cann.h"
#include "operators/framework/operator_call.h"
#include "ranks.h"

using namespace collops;

namespace {

using slow_cann::SlowStream;

constexpr int kRankSize = 2;

std::shared_ptr<Communicator> MakeMember(const JobIdentity& job, int rank, int rank_size) {
  CommunicatorSpec spec;
  spec.backend = "hccl";
  spec.rank = rank;
  spec.rank_size = rank_size;
  spec.comm_mode = COMM_MULTI_THREAD;
  spec.timeout_s = check::Patience(20.0);
  // One thread makes the calls of both ranks, one after the other.
  setenv("COLLOPS_HCCL_MEET", "0", 1);
  return hccl::Make(std::make_shared<control::Control>(spec, job, 0), slow_cann::GetApi(), nullptr,
                    false);
}

// Gathers two elements of rank 0, and three of rank 1 if there is one.
Status GatherOne(Communicator* communicator, SlowStream* stream) {
  static constexpr int64_t kCounts[kRankSize] = {2, 3};
  static constexpr int64_t kDispls[kRankSize] = {0, 2};
  static int32_t x[3] = {};
  static int32_t output[5] = {};
  static const Agreement agreement("AllGatherV");
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x;
  call.output = output;
  call.recv_counts = kCounts;
  call.rdispls = kDispls;
  call.stream = stream;
  return communicator->AllGatherV(call);
}

// A group, whose ranks are threads here, after first contact.
class Group {
 public:
  Group() {
    slow_cann::rank_size = kRankSize;
    slow_cann::num_destroyed = 0;
    const JobIdentity job = ranks::FreshJob();
    for (int rank = 0; rank < kRankSize; ++rank) {
      members_.push_back(MakeMember(job, rank, kRankSize));
    }
    std::thread other([this] { EXPECT_TRUE(rank(1).Connect().ok()); });
    EXPECT_TRUE(rank(0).Connect().ok());
    other.join();
  }
  ~Group() { slow_cann::on_query = nullptr; }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Communicator& rank(size_t rank) { return *members_[rank]; }
  SlowStream& stream(size_t rank) { return streams_[rank]; }

  Status Gather(size_t rank) { return GatherOne(members_[rank].get(), &streams_[rank]); }

 private:
  std::vector<std::shared_ptr<Communicator>> members_;
  SlowStream streams_[kRankSize];
};

}  // namespace

TEST(ClosingWaitsForASlowerRanksCalls) {
  Group group;
  EXPECT_TRUE(group.Gather(0).ok());
  bool has_come = false;
  slow_cann::on_query = [&] {
    if (has_come) return;
    has_come = true;
    ExpectStatus(group.Gather(1), NO_ERROR, "");
    group.stream(0).RunAll();
  };
  group.rank(0).Close("done");
  EXPECT_TRUE(has_come);
  slow_cann::on_query = nullptr;
  ExpectStatus(group.Gather(1), ERROR_PEER_LOST, "done");
  group.stream(1).RunAll();
}

TEST(ARankThatClosesDoesNotWaitForOneThatHasLeft) {
  Group group;
  EXPECT_TRUE(group.Gather(0).ok());
  group.rank(1).Close("gone");
  const Deadline patience = Deadline::After(check::Patience(10));
  group.rank(0).Close("done");
  EXPECT_FALSE(patience.Passed());
  group.stream(0).RunAll();
}

TEST(TwoThreadsThatCloseAtOnceReleaseTheEngineOnce) {
  Group group;
  EXPECT_TRUE(group.Gather(0).ok());
  const std::thread::id first = std::this_thread::get_id();
  std::atomic<bool> is_in_both{false};
  std::thread second;
  slow_cann::on_query = [&] {
    if (std::this_thread::get_id() != first) is_in_both = true;
    if (std::this_thread::get_id() != first || second.joinable()) return;
    second = std::thread([&] { group.rank(0).Close("second"); });
    // Both threads are inside only if both are let in; otherwise the limit ends this wait.
    const Deadline limit = Deadline::After(0.5);
    while (!is_in_both && !limit.Passed()) std::this_thread::yield();
    group.stream(0).RunAll();
  };
  group.rank(0).Close("first");
  second.join();
  EXPECT_FALSE(is_in_both);
  EXPECT_EQ(slow_cann::num_destroyed.load(), 1);
}

TEST(CallsRunOnTheCommunicatorsNpu) {
  slow_cann::npu = 1;
  slow_cann::rank_size = 1;
  slow_cann::npus_of_calls.clear();
  SlowStream stream;
  const auto communicator = MakeMember(ranks::FreshJob(), 0, 1);
  slow_cann::npu = 3;
  EXPECT_EQ(GatherOne(communicator.get(), &stream).message(), "");
  EXPECT_EQ(slow_cann::npu, 3);
  stream.RunAll();
  // A thread without one gets the communicator's.
  std::thread([&] {
    slow_cann::npu = -1;
    communicator->Close("done");
  }).join();
  EXPECT_EQ(slow_cann::npus_of_calls, (std::vector<int32_t>{1, 1, 1}));  // made, called, destroyed
  slow_cann::npu = 0;
}

TEST(ARefusalBeforeFirstContactReachesTheOthers) {
  const JobIdentity job = ranks::FreshJob();
  slow_cann::rank_size = kRankSize;
  std::shared_ptr<Communicator> peer;  // alive until both are done
  SlowStream streams[kRankSize];
  std::thread other([&] {
    slow_cann::npu = -1;
    peer = MakeMember(job, 1, kRankSize);
    ExpectStatus(GatherOne(peer.get(), &streams[1]), ERROR_INVALID_PARAM,
                 "AllGatherV: no NPU is chosen in this thread");
    slow_cann::npu = 1;
    EXPECT_EQ(GatherOne(peer.get(), &streams[1]).message(), "");
  });
  const auto communicator = MakeMember(job, 0, kRankSize);
  const Status status = GatherOne(communicator.get(), &streams[0]);
  ExpectStatus(status, ERROR_RANK_MISMATCH, "no NPU is chosen in this thread");
  EXPECT_CONTAINS(status.message(), "rank 1");
  EXPECT_EQ(GatherOne(communicator.get(), &streams[0]).message(), "");
  other.join();
  for (SlowStream& stream : streams) stream.RunAll();
}

// The other ranks may have put their calls on streams: the group ends, and they hear why.
TEST(ARefusalAfterFirstContactEndsTheGroup) {
  Group group;
  // What HCCL cannot do no rank does: that ends nothing.
  EXPECT_TRUE(group.rank(1).Refuse("AllGatherV", Error(ERROR_UNSUPPORTED, "no such sum")).ok());
  EXPECT_TRUE(group.Gather(0).ok());
  const Status reason = Error(ERROR_INVALID_TENSOR_ADDR, "counts on an NPU");
  EXPECT_TRUE(group.rank(1).Refuse("AllGatherV", reason).ok());
  ExpectStatus(group.Gather(0), ERROR_RANK_MISMATCH,
               "AllGatherV: rank 1 refused its part: counts on an NPU");
  group.stream(0).RunAll();
}
