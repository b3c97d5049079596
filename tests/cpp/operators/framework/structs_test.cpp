// The parameter structs: ATB's keys and defaults, equality, and JSON and back. What is refused when
// reading: tests/refusals and tests/unit/atb.
#include <regex>
#include <string>

#include "check.h"
#include "collops/operators/params.h"
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

template <typename Param>
Param Read(const std::string& text) {
  Param param;
  EXPECT_EQ(FromJson(text, &param).message(), "");
  return param;
}

// Another value of the same type.
std::string Another(const std::string& value) {
  if (value == "true") return "false";
  if (value == "false") return "true";
  if (value == "[]") return "[5,0,9223372036854775807]";
  if (value[0] == '"') return "\"a \\\"b\\\" d\u00e9p\"";
  return std::to_string(std::stoi(value) + 1);
}

// Each field of the text, also of a struct inside, set to another value: another struct, which
// comes back from JSON.
template <typename Param>
void EveryFieldCounts() {
  const std::string text = ToJson(Param());
  EXPECT_TRUE(Read<Param>(text) == Param());
  EXPECT_TRUE(Read<Param>("{}") == Param());
  const std::regex field(R"re("(\w+)":(-?\d+|"[^"]*"|true|false|\[\]))re");
  int fields = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), field), end; at != end; ++at, ++fields) {
    std::string changed = text;
    changed.replace(static_cast<size_t>(at->position(2)), at->str(2).size(), Another(at->str(2)));
    const auto param = Read<Param>(changed);
    EXPECT_FALSE(param == Param());
    EXPECT_EQ(ToJson(param), changed);
  }
  EXPECT_TRUE(fields >= 7);
}

// What is not in JSON: bytes that must be zero, and a communicator of this process.
template <typename Param>
void ReservedBytesAndCommunicatorsCount() {
  Param param;
  param.rsv[sizeof(param.rsv) - 1] = 5;
  EXPECT_FALSE(param == Param());
  Param read;
  ExpectStatus(FromJson(ToJson(param), &read), ERROR_INVALID_PARAM,
               Concat("rsv[", sizeof(param.rsv) - 1, "] must be 0"));
  EXPECT_TRUE(read == Param());
  param = Param();
  param.hcclComm = &param;
  EXPECT_FALSE(param == Param());
  EXPECT_EQ(ToJson(param), ToJson(Param()));
  EXPECT_TRUE(Read<Param>(R"({"hcclComm": null, "rsv": [0, 0]})") == Param());
  ExpectStatus(FromJson(R"({"hcclComm": 94023})", &read), ERROR_INVALID_PARAM,
               "hcclComm must be left out");
}

template <typename... Params>
void Check() {
  (EveryFieldCounts<Params>(), ...);
  (ReservedBytesAndCommunicatorsCount<Params>(), ...);
}

// A struct of two ranks that are threads.
template <typename Param>
Param Right() {
  Param param;
  param.rank = 0;
  param.rankSize = 2;
  param.backend = "shm";
  param.commMode = COMM_MULTI_THREAD;
  param.commDomain = "structs_test";
  return param;
}

}  // namespace

TEST(EveryFieldOfEveryStructCounts) {
  Check<AllGatherParam, AllGatherVParam, AllReduceParam, AllToAllParam, AllToAllVParam,
        AllToAllVV2Param, BroadcastParam, LinearParallelParam, RecvParam, ReduceScatterParam,
        ReduceScatterVParam, SendParam>();
  LinearParallelParam grid;
  grid.twoDimTPInfo.rsv[2] = 1;
  EXPECT_FALSE(grid == LinearParallelParam());
}

TEST(TheTextHasATBsKeysDefaultsAndOrder) {
  EXPECT_EQ(ToJson(AllGatherVParam()), R"({"rank":-1,"rankSize":0,"rankRoot":0,"backend":"hccl",)"
                                       R"("commMode":0,"rankTableFile":"","commDomain":""})");
  EXPECT_EQ(ToJson(ReduceScatterVParam()),
            R"({"rank":0,"rankSize":0,"rankRoot":0,"sendCounts":[],"sdispls":[],"recvCount":0,)"
            R"("reduceType":"sum","commMode":0,"backend":"hccl","rankTableFile":"",)"
            R"("commDomain":""})");
  EXPECT_EQ(ToJson(AllToAllParam()),
            R"({"rank":0,"rankSize":0,"rankRoot":0,"backend":"hccl","commMode":0,)"
            R"("rankTableFile":"","commDomain":"","transpose":false})");
  EXPECT_EQ(ToJson(AllToAllVParam()),
            R"({"rank":0,"rankSize":0,"rankRoot":0,"sendCounts":[],"sdispls":[],)"
            R"("recvCounts":[],"rdispls":[],"backend":"hccl","commMode":0,"rankTableFile":"",)"
            R"("commDomain":""})");
  EXPECT_EQ(ToJson(LinearParallelParam()),
            R"({"transWeight":true,"rank":0,"rankSize":0,"rankRoot":0,"hasResidual":false,)"
            R"("backend":"hccl","commMode":0,"rankTableFile":"","type":0,)"
            R"("keepIntermediate":false,"quantType":-1,"quantGroupSize":0,"outDataType":-1,)"
            R"("commDomain":"","twoDimTPInfo":{"agDim":0,"rsDim":0,"innerDimIsAg":1},)"
            R"("moeInfo":{"localExpertNums":1,"epSize":1,"tpSize":1},)"
            R"("gatherRows":[],"scatterRows":[],"sumLeaves":0,"sumColumns":[]})");
  // ATB's space, which its callers may have set to zero.
  EXPECT_EQ(sizeof(LinearParallelParam().rsv), 52u);
  EXPECT_EQ(sizeof(AllToAllParam().rsv), 62u);
  EXPECT_EQ(sizeof(AllGatherVParam().rsv), 64u);
}

TEST(ReservedBytesAreRefused) {
  std::unique_ptr<Operation> operation;
  auto gather = Right<AllGatherVParam>();
  gather.rsv[63] = 255;
  gather.backend = "none";  // they come first
  ExpectStatus(CreateOperation(gather, &operation), ERROR_INVALID_PARAM,
               "AllGatherV: rsv[63] is reserved, it must be 0, got 255");
  auto linear = Right<LinearParallelParam>();
  linear.twoDimTPInfo.rsv[1] = 1;
  ExpectStatus(CreateOperation(linear, &operation), ERROR_INVALID_PARAM,
               "LinearParallel: twoDimTPInfo.rsv[1] is reserved");
}

TEST(DeepNestingIsNotFollowedAndMessagesStayShort) {
  const std::string nested = std::string(200000, '[') + std::string(200000, ']');
  AllGatherVParam param;
  ExpectStatus(FromJson(R"({"rank": )" + nested + "}", &param), ERROR_INVALID_PARAM,
               " is nested more than 32 deep");
  const std::string huge(100000, 'a');
  EXPECT_TRUE(FromJson(R"({"rank": ")" + huge + "\"}", &param).message().size() < 300);
  EXPECT_TRUE(FromJson(R"({")" + huge + R"(": 1})", &param).message().size() < 300);
}

TEST(AnUpdateKeepsTheKindOfOperation) {
  std::unique_ptr<Operation> operation;
  auto gather = Right<AllGatherParam>();
  ExpectStatus(CreateOperation(gather, &operation), NO_ERROR, "");
  EXPECT_EQ(std::string(operation->Name()), "AllGather");
  gather.rankRoot = 1;
  ExpectStatus(UpdateOperation(gather, &operation), NO_ERROR, "");
  const Operation* const before = operation.get();
  ExpectStatus(UpdateOperation(Right<BroadcastParam>(), &operation), ERROR_INVALID_PARAM,
               "Broadcast: cannot update an operation named AllGather");
  auto linear = Right<LinearParallelParam>();
  linear.type = LinearParallelParam::PURE_LINEAR;
  ExpectStatus(UpdateOperation(linear, &operation), ERROR_INVALID_PARAM,
               "LinearParallel: cannot update an operation named AllGather");
  gather.rankSize = 1;
  EXPECT_FALSE(CreateOperation(gather, &operation).ok());
  EXPECT_TRUE(operation.get() == before);
  std::unique_ptr<Operation>* nowhere = nullptr;
  ExpectStatus(CreateOperation(linear, {}, nowhere), ERROR_INVALID_PARAM,
               "the place for the operation is null");
}
