// How a rank of hccl leaves while its streams still have calls to run.
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

// A group, whose ranks are threads here, after first contact.
class Group {
 public:
  Group() {
    slow_cann::rank_size = kRankSize;
    slow_cann::num_destroyed = 0;
    const JobIdentity job = ranks::FreshJob();
    for (int rank = 0; rank < kRankSize; ++rank) {
      CommunicatorSpec spec;
      spec.backend = "hccl";
      spec.rank = rank;
      spec.rank_size = kRankSize;
      spec.comm_mode = COMM_MULTI_THREAD;
      spec.timeout_s = check::Patience(20.0);
      members_.push_back(hccl::Make(std::make_shared<control::Control>(spec, job, 0),
                                    slow_cann::GetApi(), nullptr, false));
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

  Status Gather(size_t rank) {
    static const Agreement agreement("AllGatherV");
    AllGatherVCall call;
    call.agreement = &agreement;
    call.dtype = DType::kInt32;
    call.x = x_;
    call.output = output_;
    call.recv_counts = kCounts;
    call.rdispls = kDispls;
    call.stream = &streams_[rank];
    return members_[rank]->AllGatherV(call);
  }

 private:
  static constexpr int64_t kCounts[kRankSize] = {2, 3};
  static constexpr int64_t kDispls[kRankSize] = {0, 2};

  std::vector<std::shared_ptr<Communicator>> members_;
  SlowStream streams_[kRankSize];
  int32_t x_[3] = {};
  int32_t output_[5] = {};
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
