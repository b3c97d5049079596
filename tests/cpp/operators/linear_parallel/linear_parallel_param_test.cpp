// LinearParallelParam: defaults, equality and JSON. What creation refuses: tests/refusals.
#include "collops/operators/params.h"

#include "check.h"

using namespace collops;

namespace {

using P = LinearParallelParam;

template <typename Change>
bool Differs(Change change) {
  const P a;
  P b;
  change(b);
  return a == P() && !(a == b) && b == b;
}

P Full() {
  P param;
  param.transWeight = false;
  param.rank = 3;
  param.rankSize = 6;
  param.rankRoot = 2;
  param.hasResidual = true;
  param.backend = "lcoc";
  param.commMode = COMM_MULTI_THREAD;
  param.rankTableFile = "t.json";
  param.type = P::ALL_GATHER_LINEAR;
  param.keepIntermediate = true;
  param.quantType = P::QUANT_TYPE_PER_GROUP;
  param.quantGroupSize = 32;
  param.outDataType = DType::kBFloat16;
  param.commDomain = "tp";
  param.twoDimTPInfo.agDim = 65535;
  param.twoDimTPInfo.rsDim = 2;
  param.twoDimTPInfo.innerDimIsAg = 0;
  param.moeInfo = {16, -128, 127};
  param.gatherRows = {5, 0, INT64_MAX};
  param.scatterRows = {7};
  return param;
}

P Valid() {
  P param;
  param.rankSize = 2;
  param.backend = "shm";
  param.commMode = COMM_MULTI_THREAD;
  param.commDomain = "linear_parallel_param_test";
  return param;
}

void Refused(const std::string& text, const std::string& part) {
  P param;
  const Status status = FromJson(text, &param);
  EXPECT_EQ(status.code(), ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(), part);
  EXPECT_TRUE(param == P());
}

template <typename Spoil>
void NotCreated(const std::string& part, Spoil spoil) {
  P param = Valid();
  spoil(param);
  std::unique_ptr<Operation> operation;
  const Status status = CreateOperation(param, &operation);
  EXPECT_EQ(std::string(ErrorName(status.code())), std::string("ERROR_INVALID_PARAM"));
  EXPECT_CONTAINS(status.message(), part);
  EXPECT_CONTAINS(status.message(), "LinearParallel: ");
  EXPECT_TRUE(operation == nullptr);
}

}  // namespace

TEST(DefaultsAreThoseOfATB) {
  const P param;
  EXPECT_TRUE(param.transWeight);
  EXPECT_FALSE(param.hasResidual || param.keepIntermediate);
  EXPECT_EQ(param.rank, 0);
  EXPECT_EQ(param.backend, std::string("hccl"));
  EXPECT_EQ(param.type, P::LINEAR_ALL_REDUCE);
  EXPECT_EQ(param.quantType, P::QUANT_TYPE_UNQUANT);
  EXPECT_EQ(static_cast<int>(param.outDataType), -1);
  EXPECT_EQ(param.twoDimTPInfo.innerDimIsAg, 1);
  EXPECT_EQ(param.moeInfo.localExpertNums, 1);
  EXPECT_EQ(sizeof(param.rsv), 52u);
  EXPECT_TRUE(param.gatherRows.empty() && param.scatterRows.empty());
}

TEST(EveryFieldCounts) {
  int handle = 0;
  EXPECT_TRUE(Differs([](P& p) { p.transWeight = false; }));
  EXPECT_TRUE(Differs([](P& p) { p.rank = 1; }));
  EXPECT_TRUE(Differs([](P& p) { p.rankSize = 2; }));
  EXPECT_TRUE(Differs([](P& p) { p.rankRoot = 1; }));
  EXPECT_TRUE(Differs([](P& p) { p.hasResidual = true; }));
  EXPECT_TRUE(Differs([](P& p) { p.backend = "shm"; }));
  EXPECT_TRUE(Differs([&](P& p) { p.hcclComm = &handle; }));
  EXPECT_TRUE(Differs([](P& p) { p.commMode = COMM_MULTI_THREAD; }));
  EXPECT_TRUE(Differs([](P& p) { p.rankTableFile = "t"; }));
  EXPECT_TRUE(Differs([](P& p) { p.type = P::PURE_LINEAR; }));
  EXPECT_TRUE(Differs([](P& p) { p.keepIntermediate = true; }));
  EXPECT_TRUE(Differs([](P& p) { p.quantType = P::QUANT_TYPE_PER_TENSOR; }));
  EXPECT_TRUE(Differs([](P& p) { p.quantGroupSize = 1; }));
  EXPECT_TRUE(Differs([](P& p) { p.outDataType = DType::kFloat32; }));
  EXPECT_TRUE(Differs([](P& p) { p.commDomain = "d"; }));
  EXPECT_TRUE(Differs([](P& p) { p.twoDimTPInfo.agDim = 1; }));
  EXPECT_TRUE(Differs([](P& p) { p.twoDimTPInfo.rsDim = 1; }));
  EXPECT_TRUE(Differs([](P& p) { p.twoDimTPInfo.innerDimIsAg = 0; }));
  EXPECT_TRUE(Differs([](P& p) { p.twoDimTPInfo.rsv[2] = 1; }));
  EXPECT_TRUE(Differs([](P& p) { p.moeInfo.localExpertNums = 2; }));
  EXPECT_TRUE(Differs([](P& p) { p.moeInfo.epSize = 2; }));
  EXPECT_TRUE(Differs([](P& p) { p.moeInfo.tpSize = 2; }));
  EXPECT_TRUE(Differs([](P& p) { p.rsv[51] = 1; }));
  EXPECT_TRUE(Differs([](P& p) { p.gatherRows = {1}; }));
  EXPECT_TRUE(Differs([](P& p) { p.scatterRows = {1}; }));
}

TEST(TheTextHasATBsKeysInATBsOrder) {
  EXPECT_EQ(ToJson(P()),
            std::string("{\"transWeight\":true,\"rank\":0,\"rankSize\":0,\"rankRoot\":0,"
                        "\"hasResidual\":false,\"backend\":\"hccl\",\"commMode\":0,"
                        "\"rankTableFile\":\"\",\"type\":0,\"keepIntermediate\":false,"
                        "\"quantType\":-1,\"quantGroupSize\":0,\"outDataType\":-1,"
                        "\"commDomain\":\"\","
                        "\"twoDimTPInfo\":{\"agDim\":0,\"rsDim\":0,\"innerDimIsAg\":1},"
                        "\"moeInfo\":{\"localExpertNums\":1,\"epSize\":1,\"tpSize\":1},"
                        "\"gatherRows\":[],\"scatterRows\":[]}"));
}

TEST(EveryFieldIsReadBackFromJson) {
  P param;
  EXPECT_EQ(FromJson(ToJson(Full()), &param).message(), std::string());
  EXPECT_TRUE(param == Full());
  EXPECT_TRUE(FromJson("{\"twoDimTPInfo\": {\"rsDim\": 3}}", &param).ok());
  EXPECT_EQ(param.twoDimTPInfo.rsDim, 3);
  EXPECT_EQ(param.twoDimTPInfo.innerDimIsAg, 1);
  EXPECT_TRUE(FromJson("{\"rsv\": [0, 0], \"twoDimTPInfo\": {\"rsv\": [0, 0, 0]}}", &param).ok());
}

TEST(TextThatIsNoStruct) {
  Refused("{\"transWeigth\": true}", "the nearest known key is \"transWeight\"");
  Refused("{\"transWeight\": 1}", "LinearParallelParam: transWeight must be true or false, got 1");
  Refused("{\"twoDimTPInfo\": 3}",
          "LinearParallelParam: twoDimTPInfo must be an object, got number");
  Refused("{\"twoDimTPInfo\": {\"agdim\": 1}}",
          "LinearParallelParam: twoDimTPInfo: unknown key \"agdim\"; the nearest known key is "
          "\"agDim\"");
  Refused("{\"twoDimTPInfo\": {\"agDim\": 65536}}", "agDim must be an integer from 0 to 65535");
  Refused("{\"twoDimTPInfo\": {\"rsv\": [0, 1]}}", "twoDimTPInfo: rsv[1] must be 0");
  Refused("{\"moeInfo\": {\"epSize\": 128}}", "epSize must be an integer from -128 to 127");
  Refused("{\"rsv\": [1]}", "rsv[0] must be 0");
  Refused("{\"gatherRows\": [1, \"2\"]}", "gatherRows[1] must be an integer");
}

TEST(ReservedBytes) {
  NotCreated("rsv[51] is reserved", [](P& p) { p.rsv[51] = 9; });
  NotCreated("twoDimTPInfo.rsv[1] is reserved", [](P& p) { p.twoDimTPInfo.rsv[1] = 1; });
}

TEST(AnUpdateKeepsTheKindOfOperation) {
  std::unique_ptr<Operation> operation;
  P param = Valid();
  EXPECT_EQ(CreateOperation(param, &operation).message(), std::string());
  param.type = P::PURE_LINEAR;
  EXPECT_EQ(UpdateOperation(param, &operation).message(), std::string());
  const Operation* before = operation.get();
  param.type = P::MAX;
  EXPECT_EQ(UpdateOperation(param, &operation).code(), ERROR_INVALID_PARAM);
  EXPECT_TRUE(operation.get() == before);
  AllGatherVParam gather;
  gather.rank = 0;
  gather.rankSize = 2;
  gather.backend = "shm";
  gather.commMode = COMM_MULTI_THREAD;
  gather.commDomain = param.commDomain;
  EXPECT_EQ(CreateOperation(gather, &operation).message(), std::string());
  param.type = P::PURE_LINEAR;
  EXPECT_CONTAINS(UpdateOperation(param, &operation).message(),
                  "LinearParallel: cannot update an operation named AllGatherV");
}
