// How an operation finds its communicator; what creation refuses besides: tests/refusals.
#include "collops/operators/params.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "check.h"
#include "collops/comm/registry.h"

using namespace collops;

namespace {

// Sets an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

AllGatherVParam Gather() {
  AllGatherVParam param;
  param.rank = 0;
  param.rankSize = 2;
  param.backend = "shm";
  param.commMode = COMM_MULTI_THREAD;
  param.commDomain = "create_operation_test";
  return param;
}

ReduceScatterVParam Scatter() {
  ReduceScatterVParam param;
  param.rankSize = 2;
  param.backend = "shm";
  param.commMode = COMM_MULTI_THREAD;
  param.commDomain = "create_operation_test";
  return param;
}

template <typename Param>
Status Create(const Param& param) {
  std::unique_ptr<Operation> operation;
  const Status status = CreateOperation(param, &operation);
  EXPECT_EQ(operation != nullptr, status.ok());
  return status;
}

void ExpectRefused(const Status& status, ErrorCode code, const std::string& part) {
  EXPECT_EQ(std::string(ErrorName(status.code())), std::string(ErrorName(code)));
  EXPECT_CONTAINS(status.message(), part);
}

// Both operators refuse a field that both have with the same text.
template <typename Spoil>
void BothRefuse(ErrorCode code, const std::string& part, Spoil spoil) {
  AllGatherVParam gather = Gather();
  spoil(gather);
  ExpectRefused(Create(gather), code, part);
  ExpectRefused(Create(gather), code, "AllGatherV: ");
  ReduceScatterVParam scatter = Scatter();
  spoil(scatter);
  ExpectRefused(Create(scatter), code, part);
  ExpectRefused(Create(scatter), code, "ReduceScatterV: ");
}

constexpr ErrorCode kInvalid = ERROR_INVALID_PARAM;

}  // namespace

// They come first. Python refuses them before, as JSON does.
TEST(ReservedBytes) {
  BothRefuse(kInvalid, "rsv[63] is reserved, it must be 0, got 255", [](auto& p) {
    p.rsv[63] = 255;
    p.backend = "none";
  });
}

TEST(RankTables) {
  BothRefuse(kInvalid, "rankTableFile \"/no/such/table.json\": No such file",
             [](auto& p) { p.rankTableFile = "/no/such/table.json"; });
  BothRefuse(kInvalid, "rankTableFile \"/\" is not a regular file",
             [](auto& p) { p.rankTableFile = "/"; });
  char path[] = "/tmp/collops_rank_table_XXXXXX";
  const int descriptor = mkstemp(path);
  ASSERT_TRUE(descriptor != -1);
  BothRefuse(kInvalid, Concat("rank table \"", path, "\": malformed JSON at line 1, column 1"),
             [&](auto& p) { p.rankTableFile = path; });
  BothRefuse(kInvalid, "rankRoot must be in [0, 2), got 9", [&](auto& p) {
    p.rankTableFile = path;
    p.rankRoot = 9;
  });
  std::remove(path);
}

TEST(AnOperationIsMade) {
  std::unique_ptr<Operation> operation;
  EXPECT_EQ(CreateOperation(Gather(), &operation).message(), std::string());
  ASSERT_TRUE(operation != nullptr);
  EXPECT_EQ(std::string(operation->Name()), std::string("AllGatherV"));
  EXPECT_EQ(CreateOperation(Scatter(), &operation).message(), std::string());
  EXPECT_EQ(std::string(operation->Name()), std::string("ReduceScatterV"));
  std::unique_ptr<Operation>* nowhere = nullptr;
  ExpectRefused(CreateOperation(Gather(), nowhere), kInvalid,
                "the place for the operation is null");
}

TEST(AFailedCreationKeepsTheOperation) {
  std::unique_ptr<Operation> operation;
  EXPECT_TRUE(CreateOperation(Gather(), &operation).ok());
  const Operation* before = operation.get();
  AllGatherVParam faulty = Gather();
  faulty.rankSize = 1;
  EXPECT_FALSE(CreateOperation(faulty, &operation).ok());
  EXPECT_TRUE(operation.get() == before);
}

TEST(EnvironmentReplacesTheBackend) {
  AllGatherVParam param = Gather();
  param.backend = "hccl";
  {
    const Variable variable("COLLOPS_BACKEND", "shm");
    EXPECT_EQ(Create(param).message(), std::string());
    param.backend = "lccl";  // checked before it is replaced
    ExpectRefused(Create(param), kInvalid, "does not run this operator");
    param.backend = "hccl";
  }
  {
    const Variable variable("COLLOPS_BACKEND", "nccl=cuda,hccl=shm");
    EXPECT_EQ(Create(param).message(), std::string());
  }
  const Variable variable("COLLOPS_BACKEND", "hccl=smh");
  ExpectRefused(Create(param), kInvalid,
                "COLLOPS_BACKEND=hccl=smh replaces \"hccl\" by the unknown backend \"smh\"");
}

TEST(EnvironmentSaysTheTimeout) {
  AllGatherVParam param = Gather();
  param.commDomain = "create_operation_test timeout";
  const Variable variable("COLLOPS_TIMEOUT_S", "2.5");
  EXPECT_EQ(Create(param).message(), std::string());
  CommunicatorSpec spec;
  spec.backend = "shm";
  spec.comm_domain = param.commDomain;
  spec.rank_size = 2;
  spec.comm_mode = COMM_MULTI_THREAD;
  std::shared_ptr<Communicator> communicator;
  ASSERT_TRUE(Registry::Instance().Get(spec, &communicator).ok());
  EXPECT_EQ(communicator->timeout_s(), 2.5);
  const Variable wrong("COLLOPS_TIMEOUT_S", "soon");
  ExpectRefused(Create(param), kInvalid, "COLLOPS_TIMEOUT_S");
}

TEST(RankFromTheLauncher) {
  AllGatherVParam param = Gather();
  param.rank = -1;
  for (const char* name : {"COLLOPS_RANK", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK",
                           "PMI_RANK", "SLURM_PROCID"}) {
    unsetenv(name);
  }
  ExpectRefused(Create(param), kInvalid,
                "AllGatherV: rank is -1 and no launcher sets it: set rank in [0, 2)");
  const Variable size("COLLOPS_RANK_SIZE", "2");
  {
    const Variable rank("COLLOPS_RANK", "1");
    EXPECT_EQ(Create(param).message(), std::string());
  }
  const Variable rank("COLLOPS_RANK", "2");
  ExpectRefused(Create(param), kInvalid, "rank (from COLLOPS_RANK) must be in [0, 2), got 2");
}

namespace {

// A live communicator that a program passes as hcclComm.
std::shared_ptr<Communicator> Live(int rank) {
  CommunicatorSpec spec;
  spec.backend = "shm";
  spec.comm_domain = "create_operation_test handle";
  spec.rank = rank;
  spec.rank_size = 2;
  spec.comm_mode = COMM_MULTI_THREAD;
  std::shared_ptr<Communicator> communicator;
  EXPECT_EQ(Registry::Instance().Get(spec, &communicator).message(), std::string());
  return communicator;
}

}  // namespace

TEST(ACommunicatorOfTheCallers) {
  const std::shared_ptr<Communicator> communicator = Live(1);
  ASSERT_TRUE(communicator != nullptr);
  AllGatherVParam param;
  param.backend = "shm";
  param.hcclComm = communicator.get();
  EXPECT_EQ(Create(param).message(), std::string());  // rank -1 and rankSize 0: the communicator's
  param.rank = 1;
  param.rankSize = 2;
  EXPECT_EQ(Create(param).message(), std::string());
  param.rank = 0;
  ExpectRefused(Create(param), kInvalid, "rank is 0 but hcclComm is rank 1");
  param.rank = -1;
  param.rankSize = 3;
  ExpectRefused(Create(param), kInvalid, "rankSize is 3 but hcclComm has 2 ranks");
  param.rankSize = 1;
  ExpectRefused(Create(param), kInvalid, "rankSize must be >= 2");
  param.rankSize = 0;
  param.rankRoot = 2;
  ExpectRefused(Create(param), kInvalid, "rankRoot must be in [0, 2), got 2");
  param.rankRoot = 1;
  param.backend = "nccl";
  ExpectRefused(Create(param), kInvalid, "hcclComm is a communicator of backend \"shm\"");
}

namespace {

// A struct whose default rank is 0, with rank 1's communicator.
template <typename Param>
void ExpectRankLeftOut() {
  const std::shared_ptr<Communicator> communicator = Live(1);
  ASSERT_TRUE(communicator != nullptr);
  Param param;
  param.backend = "shm";
  param.hcclComm = communicator.get();
  EXPECT_EQ(Create(param).message(), std::string());
  param.rankSize = 2;
  ExpectRefused(Create(param), kInvalid, "rank is 0 but hcclComm is rank 1");
  param.rankSize = 0;
  param.rank = 2;
  ExpectRefused(Create(param), kInvalid, "rank is 2 but hcclComm is rank 1");
}

}  // namespace

TEST(RankAndRankSizeMayBeLeftToTheCommunicator) {
  ExpectRankLeftOut<ReduceScatterVParam>();
  ExpectRankLeftOut<AllGatherParam>();
  ExpectRankLeftOut<ReduceScatterParam>();
  ExpectRankLeftOut<AllReduceParam>();
  ExpectRankLeftOut<BroadcastParam>();
  ExpectRankLeftOut<LinearParallelParam>();
}

TEST(AWrongNumberAsCommunicator) {
  AllGatherVParam param = Gather();
  param.hcclComm = reinterpret_cast<void*>(uintptr_t{12345});
  ExpectRefused(Create(param), kInvalid, "");
}
