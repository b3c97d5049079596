// The structs of AllToAllV and AllToAllVV2: defaults, equality and JSON.
#include "collops/operators/params.h"

#include <limits>

#include "operators/exchange_call.h"
#include "operators/framework/struct_checks.h"
#include "ranks.h"

using namespace collops;

namespace {

using V = AllToAllVParam;
using VV2 = AllToAllVV2Param;

using structs::CommonFieldsCount;
using structs::Matters;
using structs::Right;

}  // namespace

template <>
V structs::Right<V>() {
  return ExampleLists();
}

TEST(DefaultsAreThoseOfATB) {
  EXPECT_EQ(V().rank, 0);
  EXPECT_EQ(VV2().rank, -1);
  EXPECT_EQ(V().backend, std::string("hccl"));
  EXPECT_EQ(VV2().backend, std::string("hccl"));
  EXPECT_EQ(ToJson(V()),
            std::string("{\"rank\":0,\"rankSize\":0,\"rankRoot\":0,\"sendCounts\":[],"
                        "\"sdispls\":[],\"recvCounts\":[],\"rdispls\":[],\"backend\":\"hccl\","
                        "\"commMode\":0,\"rankTableFile\":\"\",\"commDomain\":\"\"}"));
}

TEST(EveryFieldCounts) {
  CommonFieldsCount<V>();
  CommonFieldsCount<VV2>();
  Matters<V>([](V& p) { p.sendCounts = {1}; });
  Matters<V>([](V& p) { p.sdispls = {1, -2}; });
  Matters<V>([](V& p) { p.recvCounts = {std::numeric_limits<int64_t>::max()}; });
  Matters<V>([](V& p) { p.rdispls = {0}; });
}

// A struct without rankSize leaves the number of ranks to its communicator.
TEST(ListsAgainstTheCommunicator) {
  const auto communicator = ranks::Make(ranks::FreshJob(), 0, 1);
  V param;
  param.rank = 0;
  param.backend = "shm";
  param.hcclComm = communicator.get();
  param.sendCounts = {-1};
  ExpectStatus(CheckParam(param), ERROR_INVALID_PARAM, "sendCounts[0] must be >= 0, got -1");
  param.sendCounts = {1, 1, 1};
  ExpectStatus(CheckParam(param), NO_ERROR, "");
  ExpectStatus(CheckRanks(param, 0, 1), ERROR_INVALID_PARAM,
               "sendCounts must have 1 numbers, one per rank, got 3");
}

TEST(AnOperationOfEachIsMadeAndUpdated) {
  std::unique_ptr<Operation> operation;
  V listed = ExampleLists();
  listed.commMode = COMM_MULTI_THREAD;
  listed.commDomain = "exchange_params_test";
  ExpectStatus(CreateOperation(listed, &operation), NO_ERROR, "");
  EXPECT_EQ(std::string(operation->Name()), std::string("AllToAllV"));
  listed.rdispls = {0, 3};
  ExpectStatus(UpdateOperation(listed, &operation), NO_ERROR, "");
  VV2 tensors = Right<VV2>();
  tensors.rank = 1;
  tensors.commMode = COMM_MULTI_THREAD;
  tensors.commDomain = "exchange_params_test";
  ExpectStatus(UpdateOperation(tensors, &operation), ERROR_INVALID_PARAM,
               "cannot update an operation named AllToAllV");
  ExpectStatus(CreateOperation(tensors, &operation), NO_ERROR, "");
  EXPECT_EQ(operation->NumInputs(), 6);
  ExpectStatus(CreateOperation(tensors, nullptr), ERROR_INVALID_PARAM, "is null");
}
