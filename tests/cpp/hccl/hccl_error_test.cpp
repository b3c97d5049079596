// How results of HCCL and of its runtime become a Status; CANN itself is not needed.
#include <cstdlib>
#include <memory>
#include <string>

#include "check.h"
#include "collops/comm/backends/hccl/communicator.h"
#include "collops/comm/backends/hccl/library.h"

namespace {

using collops::ErrorCode;
using collops::Status;
using collops::hccl::Api;
using collops::hccl::Result;
using collops::hccl::ToStatus;

const char* recent = nullptr;

Api FakeApi(const char* text) {
  recent = text;
  Api api = {};
  api.get_recent_error = [] { return recent; };
  return api;
}

void ExpectAnswer(Result result, ErrorCode code, const std::string& message) {
  const Status status = ToStatus(FakeApi("EI9999: an inner error"), result, "HcclAllGatherV");
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message(), message);
}

}  // namespace

TEST(AnswersBecomeCodesWithNumberNameAndText) {
  ExpectAnswer(Result::kInternal, collops::ERROR_HCCL_FAIL,
               "HcclAllGatherV returned 4 (HCCL_E_INTERNAL): EI9999: an inner error");
  ExpectAnswer(Result::kOutOfMemory, collops::ERROR_OUT_OF_DEVICE_MEMORY,
               "HcclAllGatherV returned 24 (HCCL_E_OOM): EI9999: an inner error");
  ExpectAnswer(Result::kParameter, collops::ERROR_INVALID_PARAM,
               "HcclAllGatherV returned 1 (HCCL_E_PARA): EI9999: an inner error");
  ExpectAnswer(static_cast<Result>(1041), collops::ERROR_HCCL_FAIL,
               "HcclAllGatherV returned 1041 (an unknown HcclResult): EI9999: an inner "
               "error");
}

TEST(AnErrorAboutPortsNamesWhatChoosesThem) {
  const Status bound =
      ToStatus(FakeApi("EJ0003: Failed to bind"), Result::kInternal, "HcclBarrier");
  EXPECT_CONTAINS(bound.message(), "EJ0003: Failed to bind; HCCL_IF_BASE_PORT chooses the ports");
}

TEST(ASizeOfBuffersNeedsALibraryThatTakesOne) {
  setenv("COLLOPS_HCCL_BUFFER_MB", "7", 1);
  std::shared_ptr<collops::hccl::CommHandle> handle;
  const Api api = {};
  const Status status = collops::hccl::CommHandle::FromRootInfo(api, 0, 0, 1, {}, &handle);
  unsetenv("COLLOPS_HCCL_BUFFER_MB");
  EXPECT_EQ(status.code(), collops::ERROR_UNSUPPORTED);
  EXPECT_CONTAINS(status.message(), "no sizes of single communicators: set HCCL_BUFFSIZE in its");
}

TEST(EveryResultNumberHasItsName) {
  for (int number = 0; number <= 24; ++number) {
    EXPECT_CONTAINS(std::string(Name(static_cast<Result>(number))), "HCCL_");
  }
  EXPECT_EQ(std::string(Name(Result::kSuccess)), std::string("HCCL_SUCCESS"));
  EXPECT_EQ(std::string(Name(Result::kTcpTransfer)), std::string("HCCL_E_TCP_TRANSFER"));
  EXPECT_EQ(std::string(Name(Result::kRemote)), std::string("HCCL_E_REMOTE"));
  EXPECT_EQ(std::string(Name(static_cast<Result>(-1))), std::string("an unknown HcclResult"));
}

TEST(WithoutATextTheNumberStandsAlone) {
  for (const char* text : {static_cast<const char*>(nullptr), ""}) {
    const Status status = ToStatus(FakeApi(text), Result::kTimeout, "HcclCommInitRootInfo");
    EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
    EXPECT_EQ(status.message(), std::string("HcclCommInitRootInfo returned 9 (HCCL_E_TIMEOUT)"));
  }
}

TEST(ErrorsKeepTheRuntimesNumber) {
  const Status memory = ToStatus(FakeApi(""), 200000, "aclrtCreateEvent");
  EXPECT_EQ(memory.code(), collops::ERROR_OUT_OF_DEVICE_MEMORY);
  const Status other = ToStatus(FakeApi("EE9999: busy"), 107003, "aclrtMemsetAsync");
  EXPECT_EQ(other.code(), collops::ERROR_RT_FAIL);
  EXPECT_EQ(other.message(),
            std::string("aclrtMemsetAsync returned aclError 107003: EE9999: busy"));
  EXPECT_TRUE(ToStatus(FakeApi(""), 0, "aclrtMemsetAsync").ok());
}
