// The structs of AllToAllV and AllToAllVV2: defaults, equality, JSON, and what creation refuses.
#include "operators/create_operation.h"

#include <limits>

#include "operators/exchange_call.h"
#include "ranks.h"

using namespace collops;

namespace {

using V = AllToAllVParam;
using VV2 = AllToAllVV2Param;

// The struct with one field changed is another one, and JSON keeps the change.
template <typename Param, typename Change>
void Matters(Change change) {
  Param changed;
  change(changed);
  EXPECT_TRUE(!(changed == Param()));
  Param read;
  ExpectStatus(FromJson(ToJson(changed), &read), NO_ERROR, "");
  EXPECT_TRUE(read == changed);
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
  Param other;
  other.hcclComm = &other;
  EXPECT_TRUE(!(other == Param()));
  Param reserved;
  reserved.rsv[63] = 1;
  EXPECT_TRUE(!(reserved == Param()));
}

template <typename Param>
Param Right() {
  Param param;
  param.rankSize = 2;
  param.backend = "shm";
  return param;
}

template <>
V Right<V>() {
  return ExampleLists();
}

template <typename Param, typename Change>
void Refused(const char* part, Change change) {
  Param param = Right<Param>();
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
  Refused<Param>("backend \"lccl\" does not run this operator",
                 [](Param& p) { p.backend = "lccl"; });
  Refused<Param>("unknown backend \"hccc\"", [](Param& p) { p.backend = "hccc"; });
  Refused<Param>("rsv[3]", [](Param& p) { p.rsv[3] = 7; });
  Refused<Param>("limit is 128", [](Param& p) { p.commDomain = std::string(129, 'd'); });
}

}  // namespace

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

TEST(CreationChecks) {
  CommonChecks<V>();
  CommonChecks<VV2>();
}

TEST(ListsInTheOrderOfTheContract) {
  Refused<V>("AllToAllV: sendCounts must have 2 numbers, one per rank, got 3", [](V& p) {
    p.sendCounts = {1, 2, 3};
    p.sdispls = {};
  });
  Refused<V>("sdispls must have 2 numbers, one per rank, got 0", [](V& p) {
    p.sdispls = {};
    p.recvCounts = {-1};
  });
  Refused<V>("recvCounts must have 2 numbers, one per rank, got 1", [](V& p) {
    p.sendCounts = {-1, 1};
    p.recvCounts = {1};
  });
  Refused<V>("rdispls must have 2 numbers", [](V& p) { p.rdispls = {0, 0, 0}; });
  Refused<V>("AllToAllV: recvCounts[1] must be >= 0, got -8", [](V& p) {
    p.recvCounts = {8, -8};
    p.rdispls = {-1, -1};
  });
  Refused<V>("sendCounts[0] must be >= 0, got -1", [](V& p) { p.sendCounts = {-1, -2}; });
  Refused<V>("sdispls[1] must be >= 0", [](V& p) { p.sdispls = {0, -1}; });
  Refused<V>("rdispls[0] must be >= 0", [](V& p) { p.rdispls = {-1, 0}; });
  // The distributed checks come first.
  Refused<V>("rankRoot must be", [](V& p) {
    p.rankRoot = 2;
    p.sendCounts = {};
  });
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
               "cannot update an operation that is a AllToAllV");
  ExpectStatus(CreateOperation(tensors, &operation), NO_ERROR, "");
  EXPECT_EQ(operation->NumInputs(), 6);
  ExpectStatus(CreateOperation(tensors, nullptr), ERROR_INVALID_PARAM, "is null");
}
