// An operation stores its last eight plans, the most recently used first.
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

// A call whose second block begins at 4 + `variant`.
void Choose(GatherCall& call, int variant) {
  call.rdispls[1] = 4 + variant;
}

bool HasPlan(GatherCall& call, int variant) {
  Choose(call, variant);
  return RunCall(call).ok();
}

}  // namespace

TEST(EightPlansAreKept) {
  GatherCall call;
  for (int variant = 0; variant < 8; ++variant) {
    Choose(call, variant);
    ExpectStatus(PlanCall(call), NO_ERROR, "");
  }
  for (int variant = 0; variant < 8; ++variant) EXPECT_TRUE(HasPlan(call, variant));
  EXPECT_EQ(call.communicator->gathers.size(), 8u);
  for (int variant = 0; variant < 8; ++variant) {
    EXPECT_EQ(call.communicator->gathers[static_cast<size_t>(variant)].rdispls[1], 4 + variant);
  }
}

TEST(TheNinthPlanReplacesTheLeastRecentlyUsed) {
  GatherCall call;
  for (int variant = 0; variant < 8; ++variant) {
    Choose(call, variant);
    ExpectStatus(PlanCall(call), NO_ERROR, "");
  }
  EXPECT_TRUE(HasPlan(call, 0));  // used by execute: now 1 is the oldest
  Choose(call, 2);
  ExpectStatus(PlanCall(call), NO_ERROR, "");  // used by planning again: no second plan
  Choose(call, 8);
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  EXPECT_FALSE(HasPlan(call, 1));
  for (const int variant : {0, 2, 3, 4, 5, 6, 7, 8}) EXPECT_TRUE(HasPlan(call, variant));
}

TEST(ARefusedCallStoresNoPlan) {
  GatherCall call;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  for (int64_t displ = 40; displ < 60; ++displ) {
    call.rdispls[1] = displ;
    ExpectStatus(PlanCall(call), ERROR_INVALID_TENSOR_DIM, "exceeds");
  }
  EXPECT_TRUE(HasPlan(call, 0));
}

TEST(ThePlanOutlivesTheCallersCounts) {
  GatherCall call;
  {
    std::vector<int64_t> counts = {4, 2};
    call.input(kRecvCounts).data = counts.data();
    ExpectStatus(PlanCall(call), NO_ERROR, "");
    counts.assign(2, -1);
  }
  call.input(kRecvCounts).data = call.recv_counts;
  ExpectStatus(RunCall(call), NO_ERROR, "");
  EXPECT_EQ(call.communicator->gathers.at(0).recv_counts[1], 2);
}

TEST(OnTheCpuACallHoldsNoPlan) {
  GatherCall call;
  ExpectStatus(PlanCall(call), NO_ERROR, "");
  ExpectStatus(RunCall(call), NO_ERROR, "");
  EXPECT_TRUE(call.communicator->gathers.at(0).keep == nullptr);
}

TEST(ACallOnADeviceKeepsADroppedPlanAlive) {
  GatherCall call;
  call.communicator->where = {DeviceKind::kNpu, 1};
  call.input(kGatherX).device = call.out().device = call.communicator->where;
  for (int variant = 0; variant < 9; ++variant) {
    Choose(call, variant);
    ExpectStatus(PlanCall(call), NO_ERROR, "");
    ExpectStatus(RunCall(call), NO_ERROR, "");
  }
  const AllGatherVCall& first = call.communicator->gathers.at(0);
  const AllGatherVCall& last = call.communicator->gathers.at(8);
  EXPECT_FALSE(HasPlan(call, 0));
  EXPECT_EQ(first.rdispls[1], 4);
  EXPECT_EQ(first.keep.use_count(), 1);  // no other owner
  EXPECT_EQ(last.keep.use_count(), 2);
}
