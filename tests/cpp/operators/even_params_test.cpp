// The structs of the even collectives: defaults, equality and JSON. What creation refuses:
// tests/refusals.
#include "collops/operators/params.h"

#include "check.h"
#include "operators/framework/operator_call.h"
#include "operators/framework/struct_checks.h"

using namespace collops;

namespace {

using structs::CommonFieldsCount;
using structs::Matters;
using structs::Right;

}  // namespace

TEST(DefaultsAreThoseOfATB) {
  EXPECT_EQ(AllGatherParam().rank, 0);
  EXPECT_EQ(AllGatherParam().backend, std::string("hccl"));
  EXPECT_EQ(ReduceScatterParam().backend, std::string("lccl"));
  EXPECT_EQ(ReduceScatterParam().reduceType, std::string("sum"));
  EXPECT_EQ(AllReduceParam().allReduceType, std::string("sum"));
  EXPECT_EQ(static_cast<int>(AllReduceParam().quantType), 0);
  EXPECT_TRUE(AllReduceParam().outDataType == DType::kUndefined);
  EXPECT_EQ(BroadcastParam().backend, std::string("hccl"));
}

TEST(EveryFieldCounts) {
  CommonFieldsCount<AllGatherParam>();
  CommonFieldsCount<ReduceScatterParam>();
  CommonFieldsCount<AllReduceParam>();
  CommonFieldsCount<BroadcastParam>();
  Matters<ReduceScatterParam>([](ReduceScatterParam& p) { p.reduceType = "max"; });
  Matters<AllReduceParam>([](AllReduceParam& p) { p.allReduceType = "max"; });
  Matters<AllReduceParam>(
      [](AllReduceParam& p) { p.quantType = AllReduceParam::QUANT_TYPE_PER_CHANNEL; });
  Matters<AllReduceParam>([](AllReduceParam& p) { p.outDataType = DType::kFloat16; });
}

TEST(AnOperationOfEachIsMadeAndUpdated) {
  std::unique_ptr<Operation> operation;
  AllGatherParam gather = Right<AllGatherParam>();
  gather.commMode = COMM_MULTI_THREAD;
  gather.commDomain = "even_params_test";
  ExpectStatus(CreateOperation(gather, &operation), NO_ERROR, "");
  EXPECT_EQ(std::string(operation->Name()), std::string("AllGather"));
  gather.rankRoot = 1;
  ExpectStatus(UpdateOperation(gather, &operation), NO_ERROR, "");
  BroadcastParam broadcast = Right<BroadcastParam>();
  broadcast.commMode = COMM_MULTI_THREAD;
  broadcast.commDomain = "even_params_test";
  ExpectStatus(UpdateOperation(broadcast, &operation), ERROR_INVALID_PARAM,
               "cannot update an operation named AllGather");
  ExpectStatus(CreateOperation(broadcast, nullptr), ERROR_INVALID_PARAM, "is null");
}
