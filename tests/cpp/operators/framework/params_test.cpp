// Defaults and equality of the param structs.
#include "collops/operators/params.h"

#include "check.h"

using namespace collops;

namespace {

// Two equal structs, one of which `change` alters.
template <typename Param, typename Change>
bool Differs(Change change) {
  const Param a;
  Param b;
  if (!(a == b)) return false;
  change(b);
  return !(a == b) && b == b;
}

}  // namespace

TEST(DefaultsAreThoseOfATB) {
  const AllGatherVParam gather;
  EXPECT_EQ(gather.rank, -1);
  EXPECT_EQ(gather.rankSize, 0);
  EXPECT_EQ(gather.rankRoot, 0);
  EXPECT_EQ(gather.backend, std::string("hccl"));
  EXPECT_EQ(gather.commMode, COMM_MULTI_PROCESS);
  EXPECT_TRUE(gather.hcclComm == nullptr && gather.commDomain.empty());
  EXPECT_EQ(sizeof(gather.rsv), 64u);
  const ReduceScatterVParam scatter;
  EXPECT_EQ(scatter.rank, 0);
  EXPECT_EQ(scatter.reduceType, std::string("sum"));
  EXPECT_EQ(scatter.recvCount, 0);
  EXPECT_TRUE(scatter.sendCounts.empty() && scatter.sdispls.empty());
  EXPECT_EQ(sizeof(scatter.rsv), 64u);
}

TEST(EveryFieldOfAllGatherVParamCounts) {
  using P = AllGatherVParam;
  int handle = 0;
  EXPECT_TRUE(Differs<P>([](P& p) { p.rank = 1; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.rankSize = 2; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.rankRoot = 1; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.backend = "shm"; }));
  EXPECT_TRUE(Differs<P>([&](P& p) { p.hcclComm = &handle; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.commMode = COMM_MULTI_THREAD; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.rankTableFile = "table.json"; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.commDomain = "dp"; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.rsv[63] = 1; }));
}

TEST(EveryFieldOfReduceScatterVParamCounts) {
  using P = ReduceScatterVParam;
  int handle = 0;
  EXPECT_TRUE(Differs<P>([](P& p) { p.rank = 1; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.rankSize = 2; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.rankRoot = 1; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.sendCounts = {1}; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.sdispls = {0}; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.recvCount = 1; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.reduceType = "max"; }));
  EXPECT_TRUE(Differs<P>([&](P& p) { p.hcclComm = &handle; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.commMode = COMM_UNDEFINED; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.backend = "shm"; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.rankTableFile = "table.json"; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.commDomain = "dp"; }));
  EXPECT_TRUE(Differs<P>([](P& p) { p.rsv[0] = 1; }));
}
