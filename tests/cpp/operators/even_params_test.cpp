// The structs of the even collectives: defaults, equality, JSON, and what creation refuses.
#include "operators/create_operation.h"

#include <vector>

#include "check.h"
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

// The struct with one field changed is another one, and JSON keeps the change.
template <typename Param, typename Change>
void Matters(Change change, bool in_json = true) {
  Param changed;
  change(changed);
  EXPECT_TRUE(!(changed == Param()));
  EXPECT_TRUE(changed == changed);
  Param read;
  const Status status = FromJson(ToJson(changed), &read);
  ExpectStatus(status, in_json ? NO_ERROR : ERROR_INVALID_PARAM, in_json ? "" : "rsv");
  if (in_json) EXPECT_TRUE(read == changed);
}

template <typename Param>
void CommonFieldsCount() {
  Matters<Param>([](Param& p) { p.rank = 1; });
  Matters<Param>([](Param& p) { p.rankSize = 2; });
  Matters<Param>([](Param& p) { p.rankRoot = 1; });
  Matters<Param>([](Param& p) { p.backend = "shm"; });
  Matters<Param>([](Param& p) { p.commMode = COMM_MULTI_THREAD; });
  Matters<Param>([](Param& p) { p.rankTableFile = "table.json"; });
  Matters<Param>([](Param& p) { p.commDomain = "dp"; });
  Matters<Param>([](Param& p) { p.rsv[63] = 1; }, false);
  Param with_handle;
  with_handle.hcclComm = &with_handle;
  EXPECT_TRUE(!(with_handle == Param()));
  Param read;
  ExpectStatus(FromJson(R"({"rankSise": 2})", &read), ERROR_INVALID_PARAM, "rankSise");
}

template <typename Param>
Param RightStruct() {
  Param param;
  param.rankSize = 2;
  param.backend = "shm";
  return param;
}

template <typename Param, typename Change>
void Refused(const char* part, Change change) {
  Param param = RightStruct<Param>();
  ExpectStatus(CheckParam(param), NO_ERROR, "");
  change(param);
  ExpectStatus(CheckParam(param), ERROR_INVALID_PARAM, part);
}

template <typename Param>
void CommonChecks() {
  Refused<Param>("rankSize must be >= 2, got 1", [](Param& p) { p.rankSize = 1; });
  Refused<Param>("rank must be in [0, 2), got 2", [](Param& p) { p.rank = 2; });
  Refused<Param>("rankRoot must be in [0, 2), got -1", [](Param& p) { p.rankRoot = -1; });
  Refused<Param>("commMode must be 0", [](Param& p) { p.commMode = COMM_UNDEFINED; });
  Refused<Param>("backend \"lcoc\" does not run this operator",
                 [](Param& p) { p.backend = "lcoc"; });
  Refused<Param>("unknown backend \"hccc\"", [](Param& p) { p.backend = "hccc"; });
  Refused<Param>("rsv[3]", [](Param& p) { p.rsv[3] = 7; });
  Refused<Param>("limit is 128", [](Param& p) { p.commDomain = std::string(129, 'd'); });
  for (const char* backend : {"hccl", "lccl", "nccl", "cuda", "ucx"}) {
    Param param = RightStruct<Param>();
    param.backend = backend;
    ExpectStatus(CheckParam(param), NO_ERROR, "");
  }
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
  CommonChecks<AllGatherParam>();
  CommonChecks<ReduceScatterParam>();
  CommonChecks<AllReduceParam>();
  CommonChecks<BroadcastParam>();
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
  A prod = RightStruct<A>();
  prod.allReduceType = "prod";
  ExpectStatus(CheckParam(prod), NO_ERROR, "");
  for (const auto quant :
       {A::QUANT_TYPE_PER_TENSOR, A::QUANT_TYPE_PER_CHANNEL, A::QUANT_TYPE_MAX}) {
    Refused<A>("asks for a quantised AllReduce", [quant](A& p) { p.quantType = quant; });
  }
}

TEST(AnOperationOfEachIsMadeAndUpdated) {
  std::unique_ptr<Operation> operation;
  AllGatherParam gather = RightStruct<AllGatherParam>();
  gather.commMode = COMM_MULTI_THREAD;
  gather.commDomain = "even_params_test";
  ExpectStatus(CreateOperation(gather, &operation), NO_ERROR, "");
  EXPECT_EQ(std::string(operation->Name()), std::string("AllGather"));
  gather.rankRoot = 1;
  ExpectStatus(UpdateOperation(gather, &operation), NO_ERROR, "");
  BroadcastParam broadcast = RightStruct<BroadcastParam>();
  broadcast.commMode = COMM_MULTI_THREAD;
  broadcast.commDomain = "even_params_test";
  ExpectStatus(UpdateOperation(broadcast, &operation), ERROR_INVALID_PARAM,
               "cannot update an operation that is a AllGather");
  ExpectStatus(CreateOperation(broadcast, nullptr), ERROR_INVALID_PARAM, "is null");
}
