// The structs of the even collectives: defaults, equality, JSON, and what creation refuses.
#include "collops/operators/params.h"

#include <vector>

#include "check.h"
#include "operators/framework/operator_call.h"
#include "operators/framework/struct_checks.h"

using namespace collops;

namespace {

using structs::CommonChecks;
using structs::CommonFieldsCount;
using structs::Matters;
using structs::Refused;
using structs::Right;

// What only collectives that ATB has kernels of its own for run on.
template <typename Param>
void RunsOnLccl() {
  Param param = Right<Param>();
  param.backend = "lccl";
  ExpectStatus(CheckParam(param), NO_ERROR, "");
}

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

TEST(CreationChecks) {
  CommonChecks<AllGatherParam>("lcoc");
  RunsOnLccl<AllGatherParam>();
  CommonChecks<ReduceScatterParam>("lcoc");
  RunsOnLccl<ReduceScatterParam>();
  CommonChecks<AllReduceParam>("lcoc");
  RunsOnLccl<AllReduceParam>();
  CommonChecks<BroadcastParam>("lcoc");
  RunsOnLccl<BroadcastParam>();
}

TEST(ReductionsAndQuantisation) {
  using R = ReduceScatterParam;
  using A = AllReduceParam;
  Refused<R>("reduceType must be", [](R& p) { p.reduceType = "avg"; });
  Refused<A>("allReduceType must be", [](A& p) { p.allReduceType = "mul"; });
  const auto prod_of_lccl = [](auto& p) { p.backend = "lccl"; };
  Refused<R>("reduceType \"prod\" does not exist on backend \"lccl\"", [&](R& p) {
    p.reduceType = "prod";
    prod_of_lccl(p);
  });
  Refused<A>("allReduceType \"prod\" does not exist on backend \"lccl\"", [&](A& p) {
    p.allReduceType = "prod";
    prod_of_lccl(p);
  });
  A prod = Right<A>();
  prod.allReduceType = "prod";
  ExpectStatus(CheckParam(prod), NO_ERROR, "");
  for (const auto quant :
       {A::QUANT_TYPE_PER_TENSOR, A::QUANT_TYPE_PER_CHANNEL, A::QUANT_TYPE_MAX}) {
    Refused<A>("asks for a quantised AllReduce", [quant](A& p) { p.quantType = quant; });
  }
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
