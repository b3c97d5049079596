// The simulation of a call on several hosts: exact times where the formula is known, and what must
// hold of every call.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "check.h"
#include "collops/comm/backends/ucx/backend.h"
#include "collops/comm/backends/ucx/schedule.h"

namespace {

using namespace collops;

constexpr int64_t kHead = 24;
constexpr double kTiny = 1e-6;

// No CPU and no copy takes time.
LinkCosts NetworkAlone() {
  LinkCosts costs;
  costs.latency_us = 5;
  costs.network_rate = 1000;
  costs.copy_rate = costs.memory_rate = 1e15;
  return costs;
}

CallToPredict Gather(std::vector<int> host_of, std::vector<int64_t> counts,
                     LinkCosts costs = NetworkAlone()) {
  CallToPredict call;
  call.host_of = std::move(host_of);
  call.counts = std::move(counts);
  call.costs = costs;
  return call;
}

CallToPredict Reduce(std::vector<int> host_of, std::vector<int64_t> counts, DType dtype,
                     ReduceOp op = ReduceOp::kSum) {
  CallToPredict call = Gather(std::move(host_of), std::move(counts));
  call.reduces = true;
  call.dtype = dtype;
  call.op = op;
  return call;
}

Prediction Predicted(const CallToPredict& call) {
  Prediction prediction;
  EXPECT_EQ(ucx::Predict(call, &prediction).message(), "");
  return prediction;
}

std::vector<int> Blocks(int hosts, int ranks) {
  std::vector<int> host_of;
  for (int r = 0; r < hosts * ranks; ++r) host_of.push_back(r / ranks);
  return host_of;
}

int64_t Sum(const Prediction& prediction, int64_t PredictedHost::* figure) {
  int64_t sum = 0;
  for (const PredictedHost& host : prediction.hosts) sum += host.*figure;
  return sum;
}

bool Near(double a, double b) {
  return std::abs(a - b) < kTiny;
}

const std::vector<std::vector<int>> kPlacements = {
    {0, 0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {2, 0, 1, 1, 2, 2, 2}};

std::vector<int64_t> Counts(size_t ranks, int64_t scale) {
  std::vector<int64_t> counts;
  for (size_t r = 0; r < ranks; ++r) {
    counts.push_back(r == 1 ? 0 : scale * static_cast<int64_t>(r + 1));
  }
  return counts;
}

}  // namespace

TEST(ASmallBlockTakesOneLatencyAndItsBytes) {
  const Prediction one = Predicted(Gather({0, 1}, {256, 0}));
  EXPECT_TRUE(Near(one.time_us, 5 + (kHead + 1024) / 1000.0));
  EXPECT_EQ(one.link_bytes, (std::vector<int64_t>{0, kHead + 1024, kHead, 0}));
}

TEST(ALargeBlockFollowsTheHeads) {
  const Prediction one = Predicted(Gather({0, 1}, {10000, 0}));
  EXPECT_TRUE(Near(one.hosts[1].time_us, 2 * 5 + (kHead + 40000) / 1000.0));
  EXPECT_TRUE(Near(one.hosts[0].time_us, 5 + kHead / 1000.0));
  EXPECT_EQ(one.hosts[0].sent_messages, 3);  // the head, the block and its end
  EXPECT_EQ(one.hosts[1].sent_messages, 1);
}

TEST(TwoMessagesIntoOneHostFollowEachOther) {
  const Prediction one = Predicted(Gather({0, 1, 2}, {0, 10000, 10000}));
  // Host 0 has two heads; their second one lets it go on. Both blocks end at its device.
  EXPECT_TRUE(Near(one.hosts[0].network_us, (2 * kHead + 80000) / 1000.0));
  EXPECT_TRUE(one.hosts[0].time_us > 2 * 5 + 80000 / 1000.0);
  EXPECT_TRUE(one.hosts[0].time_us < 2 * 5 + (80000 + 4 * 40000) / 1000.0);
}

TEST(EitherEndOfAMessageTakesItsCpu) {
  LinkCosts costs = NetworkAlone();
  costs.network_rate = 1e15;
  costs.message_us = 3;
  costs.stream_us = {{1000, 10.0}, {3000, 50.0}};
  EXPECT_TRUE(Near(Predicted(Gather({0, 1}, {0, 0}, costs)).time_us, 3 + 5 + 3));
  // A head with 2000 bytes: half way between the points.
  const Prediction one = Predicted(Gather({0, 1}, {500, 0}, costs));
  EXPECT_TRUE(Near(one.hosts[1].time_us, 33 + 5 + 33));
  // Beyond the last point in proportion; both ranks send and receive a head, a chunk and its end.
  const Prediction both = Predicted(Gather({0, 1}, {3000, 3000}, costs));
  EXPECT_TRUE(Near(both.time_us, (3 + 5 + 3) + 2 * (2 * 3 + 200) + 5));
}

TEST(RanksThatShareACoreTakeTurns) {
  LinkCosts costs = NetworkAlone();
  costs.message_us = 3;
  costs.turn_us = 2;
  const double apart = Predicted(Gather({0, 1}, {0, 0}, costs)).time_us;
  costs.shared_cores = 2;
  EXPECT_TRUE(Near(Predicted(Gather({0, 1}, {0, 0}, costs)).time_us, apart));
  costs.shared_cores = 1;
  const double together = Predicted(Gather({0, 1}, {0, 0}, costs)).time_us;
  EXPECT_TRUE(together > 4 * 3);
  costs.turn_us = 4;
  EXPECT_TRUE(Predicted(Gather({0, 1}, {0, 0}, costs)).time_us > together);
}

TEST(AHostMeetsOncePerBlockOfOthers) {
  LinkCosts costs = NetworkAlone();
  costs.meeting_us = 7;
  const Prediction one = Predicted(Gather({0, 0, 1, 1}, {10, 10, 10, 10}, costs));
  EXPECT_EQ(one.hosts[0].meetings, 2 + 2);
  EXPECT_TRUE(one.time_us > 4 * 7);
  EXPECT_EQ(Predicted(Gather({0, 0, 1, 1}, {10, 10, 10, 0}, costs)).hosts[0].meetings, 2 + 1);
  EXPECT_EQ(Predicted(Gather({0, 1}, {10, 10}, costs)).hosts[0].meetings, 0);
}

TEST(EveryBlockCrossesOncePerOtherHost) {
  for (const auto& host_of : kPlacements) {
    const int hosts = *std::max_element(host_of.begin(), host_of.end()) + 1;
    for (const int64_t scale : {1, 700, 90000}) {
      const CallToPredict call = Gather(host_of, Counts(host_of.size(), scale));
      const Prediction one = Predicted(call);
      const int64_t blocks = std::accumulate(call.counts.begin(), call.counts.end(), int64_t{0});
      // Every rank hears of every other host.
      const int64_t heads = static_cast<int64_t>(host_of.size()) * (hosts - 1) * kHead;
      EXPECT_EQ(Sum(one, &PredictedHost::sent_bytes), heads + blocks * 4 * (hosts - 1));
    }
  }
}

TEST(WhatIsSentIsReceived) {
  for (const auto& host_of : kPlacements) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt32}) {
      for (const int64_t scale : {1, 700, 90000}) {
        for (const bool reduces : {false, true}) {
          CallToPredict call = Reduce(host_of, Counts(host_of.size(), scale), dtype);
          call.reduces = reduces;
          const Prediction one = Predicted(call);
          const int64_t sent = Sum(one, &PredictedHost::sent_bytes);
          EXPECT_EQ(Sum(one, &PredictedHost::received_bytes), sent);
          EXPECT_EQ(Sum(one, &PredictedHost::received_messages),
                    Sum(one, &PredictedHost::sent_messages));
          EXPECT_EQ(std::accumulate(one.link_bytes.begin(), one.link_bytes.end(), int64_t{0}),
                    sent);
          call.costs.shared_cores = 2;
          EXPECT_EQ(Sum(Predicted(call), &PredictedHost::sent_bytes), sent);
        }
      }
    }
  }
}

TEST(AReductionSendsWhatItsPlansSay) {
  for (const auto& host_of : kPlacements) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt32}) {
      const CallToPredict call = Reduce(host_of, Counts(host_of.size(), 90000), dtype);
      const ucx::HostMap hosts(host_of, 0);
      int64_t bytes = static_cast<int64_t>(host_of.size()) * (hosts.hosts() - 1) * kHead;
      for (int owner = 0; owner < hosts.ranks(); ++owner) {
        const auto plan = ucx::PlanReduction(hosts, owner, ucx::ElementsOf(dtype, call.op));
        bytes += plan.element_bytes * call.counts[static_cast<size_t>(owner)];
      }
      EXPECT_EQ(Sum(Predicted(call), &PredictedHost::sent_bytes), bytes);
    }
  }
}

TEST(MoreHostsNeverNeedLess) {
  for (const bool reduces : {false, true}) {
    Prediction before;
    for (int hosts = 1; hosts <= 20; ++hosts) {
      CallToPredict call =
          Reduce(Blocks(hosts, 3), std::vector<int64_t>(hosts * 3, 5000), DType::kFloat32);
      call.reduces = reduces;
      const Prediction now = Predicted(call);
      if (hosts > 1) {
        EXPECT_TRUE(now.hosts[0].sent_bytes >= before.hosts[0].sent_bytes);
        EXPECT_TRUE(now.hosts[0].most_peers >= before.hosts[0].most_peers);
        EXPECT_TRUE(now.memory[0].segment_bytes >= before.memory[0].segment_bytes);
        EXPECT_TRUE(now.time_us >= before.time_us);
      }
      before = now;
    }
  }
}

TEST(MoreRanksThanAGroupMayHave) {
  const Prediction one = Predicted(Gather(Blocks(250, 4), std::vector<int64_t>(1000, 100)));
  EXPECT_EQ(one.hosts[7].most_peers, 249);
  EXPECT_EQ(one.hosts[7].sent_bytes, 249 * 4 * (kHead + 400));
}

TEST(ACallThatNoGroupCanMakeIsRefused) {
  Prediction none;
  EXPECT_EQ(ucx::Predict(Gather({}, {}), &none).code(), ERROR_INVALID_PARAM);
  EXPECT_EQ(ucx::Predict(Gather({0, 1}, {1}), &none).message(),
            "counts must have 2 numbers, one for each rank, got 1");
  EXPECT_EQ(ucx::Predict(Gather({0, 1}, {1, -1}), &none).message(),
            "counts[1] must be >= 0, got -1");
  EXPECT_EQ(ucx::Predict(Gather({0, 2, 2}, {1, 1, 1}), &none).message(), "no rank is on host 1");
  CallToPredict call = Gather({0, 1}, {1, 1});
  call.costs.copy_rate = 0;
  EXPECT_EQ(ucx::Predict(call, &none).message(), "rates must be above 0");
}
