// collops/atb.h: what a program reads when a call fails, and when.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "operators/atb_rank.h"

namespace {

// Standard error of the process, in memory.
class ErrorOutput {
 public:
  ErrorOutput() { EXPECT_TRUE(file_ >= 0 && dup2(file_, STDERR_FILENO) >= 0); }
  ErrorOutput(const ErrorOutput&) = delete;
  ErrorOutput& operator=(const ErrorOutput&) = delete;
  ~ErrorOutput() {
    EXPECT_TRUE(dup2(saved_, STDERR_FILENO) >= 0);
    close(saved_);
    close(file_);
  }

  // Whether the text is written before a deadline.
  bool Gets(const std::string& text) const {
    const auto limit = std::chrono::duration<double>(check::Patience(20));
    const auto end = std::chrono::steady_clock::now() + limit;
    while (Text().find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  std::string Text() const {
    std::string text(1 << 16, '\0');
    const ssize_t bytes = pread(file_, text.data(), text.size(), 0);
    text.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
    return text;
  }

 private:
  const int saved_ = dup(STDERR_FILENO);
  const int file_ = memfd_create("stderr", 0);
};

atb::Operation* MakeCast(aclDataType to) {
  atb::infer::ElewiseParam param;
  param.elewiseType = atb::infer::ElewiseParam::ELEWISE_CAST;
  param.outTensorType = to;
  atb::Operation* operation = nullptr;
  EXPECT_EQ(atb::CreateOperation(param, &operation), atb::NO_ERROR);
  return operation;
}

}  // namespace

TEST(TheLogLevelSaysWhetherErrorsAreWritten) {
  const ErrorOutput output;
  EXPECT_EQ(atb::Utils::SetLogLevel(atb::LogLevel::NONE), atb::NO_ERROR);
  EXPECT_EQ(atb::CreateContext(nullptr), atb::ERROR_INVALID_PARAM);
  EXPECT_EQ(output.Text(), std::string());
  EXPECT_TRUE(Says("CreateContext: context is null"));
  EXPECT_EQ(atb::Utils::ResetLogLevel(), atb::NO_ERROR);
  EXPECT_EQ(atb::Utils::SetLogLevel(static_cast<atb::LogLevel>(5)), atb::ERROR_INVALID_PARAM);
  EXPECT_TRUE(output.Gets("SetLogLevel: the level must be from 0 (DEBUG) to 4 (NONE), got 5"));
}

TEST(AnEmptyTensorNeedsNoAddress) {
  Rank rank(0, "empty");
  atb::Operation* const cast = MakeCast(ACL_FLOAT16);
  rank.pack.inTensors = {MakeTensor(ACL_FLOAT, {0, 4}, nullptr)};
  rank.pack.outTensors = {MakeTensor(ACL_FLOAT16, {0, 4}, nullptr)};
  EXPECT_EQ(cast->Setup(rank.pack, rank.bytes, rank.context), atb::NO_ERROR);
  EXPECT_EQ(cast->Execute(rank.pack, nullptr, 0, rank.context), atb::NO_ERROR);

  uint16_t y[2] = {};
  rank.pack.inTensors = {MakeTensor(ACL_FLOAT, {2}, nullptr)};
  rank.pack.outTensors = {MakeTensor(ACL_FLOAT16, {2}, y)};
  EXPECT_EQ(cast->Setup(rank.pack, rank.bytes, rank.context), atb::ERROR_INVALID_TENSOR_ADDR);
  EXPECT_TRUE(Says("Elewise: x of shape [2] has no address"));
  rank.pack.inTensors = {MakeTensor(ACL_FLOAT, {2}, rank.x)};
  rank.pack.outTensors = {MakeTensor(ACL_FLOAT16, {2}, nullptr)};
  EXPECT_EQ(cast->Setup(rank.pack, rank.bytes, rank.context), atb::ERROR_INVALID_TENSOR_ADDR);
  EXPECT_TRUE(Says("Elewise: y of shape [2] has no address"));
  EXPECT_EQ(atb::DestroyOperation(cast), atb::NO_ERROR);
}

TEST(ACastRefusesOtherTensors) {
  Rank rank(0, "casts");
  atb::Operation* const cast = MakeCast(ACL_FLOAT16);
  const auto refused = [&](const char* part) {
    EXPECT_TRUE(cast->Setup(rank.pack, rank.bytes, rank.context) != atb::NO_ERROR);
    EXPECT_TRUE(Says(part));
  };
  uint16_t y[2] = {};
  const atb::Tensor x = MakeTensor(ACL_FLOAT, {2}, rank.x);
  rank.pack.inTensors = {x, x};
  rank.pack.outTensors = {MakeTensor(ACL_FLOAT16, {2}, y)};
  refused("Elewise: one input is needed, got 2");
  rank.pack.inTensors = {MakeTensor(ACL_INT32, {2}, rank.x)};
  refused(
      "Elewise: the input is int32, which is not converted: only float32, float16 and bfloat16");
  rank.pack.inTensors = {MakeTensor(ACL_FLOAT, {}, rank.x)};
  refused("Elewise: the input must have 1 to 8 dimensions, got 0");
  rank.pack.inTensors = {x};
  rank.pack.outTensors = {x};
  refused("Elewise: the output must be float16 [2], got float32 [2]");
  rank.pack.outTensors = {};
  refused("Elewise: one output is needed, got 0");
  EXPECT_EQ(atb::DestroyOperation(cast), atb::NO_ERROR);
}

// The other rank takes part only when the reason was written.
TEST(TheReasonIsWrittenBeforeTheOtherRanksAreThere) {
  const ErrorOutput output;
  OnTwoRanks("unplanned", [&](int index, Rank& rank) {
    if (index == 1) EXPECT_TRUE(output.Gets("AllReduce: no plan yet"));
    if (index == 1) EXPECT_EQ(rank.Setup(), atb::NO_ERROR);
    EXPECT_EQ(rank.Execute(), index == 0 ? atb::ERROR_INVALID_PARAM : atb::ERROR_RANK_MISMATCH);
  });
  EXPECT_CONTAINS(output.Text(), "when all ranks have entered it");
}

TEST(AnErrorOfAtbsArgumentsIsWrittenBeforeTheOtherRanksAreThere) {
  const ErrorOutput output;
  OnTwoRanks("streamless", [&](int index, Rank& rank) {
    EXPECT_EQ(rank.Setup(), atb::NO_ERROR);
    if (index == 0) EXPECT_EQ(rank.context->SetExecuteStream(nullptr), atb::NO_ERROR);
    if (index == 1) EXPECT_TRUE(output.Gets("ERROR_INVALID_PARAM: AllReduce: the context"));
    EXPECT_EQ(rank.Execute(), index == 0 ? atb::ERROR_INVALID_PARAM : atb::ERROR_RANK_MISMATCH);
  });
}

TEST(ExecuteAfterAFailedSetupSaysWhySetupFailed) {
  OnTwoRanks("failed setup", [](int, Rank& rank) {
    rank.pack.inTensors[0].desc.dtype = ACL_DT_UNDEFINED;
    rank.pack.inTensors[0].dataSize = 0;
    EXPECT_EQ(rank.Setup(), atb::ERROR_INVALID_TENSOR_INI_MATCH);
    EXPECT_TRUE(Says("AllReduce: x is undefined; pass one of"));
    EXPECT_EQ(rank.Execute(), atb::ERROR_INVALID_PARAM);
    EXPECT_TRUE(Says("AllReduce: no plan: the first phase failed: AllReduce: x is undefined"));
  });
}

TEST(FailuresOfAclHaveMessages) {
  char bytes[16] = {};
  EXPECT_EQ(aclrtMemcpy(bytes, 8, bytes + 8, 16, ACL_MEMCPY_DEFAULT), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("aclrtMemcpy: 16 bytes do not fit into 8"));
  EXPECT_EQ(aclrtMemset(nullptr, 8, 0, 8), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("aclrtMemset: the target is null"));
  void* data = nullptr;
  EXPECT_EQ(aclrtMalloc(&data, 0, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("aclrtMalloc: 0 bytes"));
  EXPECT_EQ(aclrtSetDevice(-1), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("aclrtSetDevice: device must be >= 0, got -1"));
  EXPECT_EQ(aclrtDestroyStream(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(Says("aclrtDestroyStream: the handle is null"));
}
