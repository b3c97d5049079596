// What a call on several hosts needs: exact figures of small calls, and what holds of every call.
#include <algorithm>
#include <numeric>
#include <vector>

#include "check.h"
#include "collops/comm/backends/ucx/backend.h"

namespace {

using namespace collops;

constexpr int64_t kHead = 24;

CallToPredict Gather(std::vector<int> host_of, std::vector<int64_t> counts) {
  CallToPredict call;
  call.host_of = std::move(host_of);
  call.counts = std::move(counts);
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

TEST(ALargeBlockFollowsTheHeads) {
  const Prediction one = Predicted(Gather({0, 1}, {10000, 0}));
  EXPECT_EQ(one.trips, 2);
  EXPECT_EQ(one.hosts[0].sent_messages, 3);  // the head, the block and its end
  EXPECT_EQ(one.hosts[1].sent_messages, 1);
  EXPECT_EQ(one.hosts[1].most_messages, 4);
}

// The sum of host 0's ranks goes to host 1, and the finished one back to its owner, rank 0.
TEST(ASumThatIsPassedOnTakesATripMore) {
  EXPECT_EQ(Predicted(Reduce({0, 1}, {90000, 90000}, DType::kFloat32)).trips, 2);
  EXPECT_EQ(Predicted(Reduce(Blocks(2, 3), {90000, 0, 0, 0, 0, 0}, DType::kFloat32)).trips, 3);
  EXPECT_EQ(Predicted(Reduce(Blocks(2, 3), {0, 0, 0, 90000, 0, 0}, DType::kFloat32)).trips, 2);
  EXPECT_EQ(Predicted(Reduce({0, 0}, {90000, 90000}, DType::kFloat32)).trips, 0);
}

// A block is read once by every other rank of its host, and its own rank writes it twice.
TEST(WhatARankCopies) {
  EXPECT_EQ(Predicted(Gather({0, 0}, {100, 300})).hosts[0].copied_bytes, 100 * 4 + 2 * 300 * 4);
  EXPECT_EQ(Predicted(Gather({0, 1}, {100, 300})).hosts[0].copied_bytes, 100 * 4);
  // Three slices are read and a sum is written; before that slices go to and come from the other.
  EXPECT_EQ(Predicted(Reduce({0, 0, 1}, {10, 10, 10}, DType::kInt32)).hosts[0].copied_bytes,
            10 * 4 + 10 * 4 + 10 * 4 * 4 / 2);
}

TEST(AHostMeetsOncePerBlockOfOthers) {
  EXPECT_EQ(Predicted(Gather({0, 0, 1, 1}, {10, 10, 10, 10})).hosts[0].meetings, 2 + 2);
  EXPECT_EQ(Predicted(Gather({0, 0, 1, 1}, {10, 10, 10, 0})).hosts[0].meetings, 2 + 1);
  EXPECT_EQ(Predicted(Gather({0, 1}, {10, 10})).hosts[0].meetings, 0);
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
        }
      }
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
}
