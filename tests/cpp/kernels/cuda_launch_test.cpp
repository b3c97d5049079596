// The driver's errors, contexts, graphs and launches, on a driver that notes how it is called.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/cuda/runtime.h"
#include "kernels/cuda_noted_driver.h"

namespace {

using namespace collops::cuda;
using collops::Status;
using noted_driver::Api;
using noted_driver::ContextOf;
using noted_driver::driver;
using noted_driver::kNotFound;

// COLLOPS_KERNELS is read once, so every test has the same file.
void UseFatbin() {
  static const std::string path = [] {
    char name[] = "/tmp/collops_launch_test_XXXXXX";
    const int file = mkstemp(name);
    const uint32_t image[4] = {0xba55ed50};
    const bool written = write(file, image, sizeof(image)) == sizeof(image);
    close(file);
    setenv("COLLOPS_KERNELS", name, 1);
    EXPECT_TRUE(written && Kernels::Available().ok());
    unlink(name);
    return std::string(name);
  }();
}

}  // namespace

TEST(AnErrorHasTheDriversNameAndText) {
  const DriverApi api = Api();
  EXPECT_TRUE(ToStatus(api, Result::kSuccess, "cuInit").ok());
  const Status known = ToStatus(api, kNotFound, "cuModuleGetFunction");
  EXPECT_EQ(known.code(), collops::ERROR_RT_FAIL);
  EXPECT_EQ(known.message(),
            "cuModuleGetFunction returned 500 (CUDA_ERROR_NOT_FOUND): named symbol not found");
  const Status unknown = ToStatus(api, static_cast<Result>(12345), "cuInit");
  EXPECT_EQ(unknown.message(),
            "cuInit returned 12345 (a CUresult without a name): the driver has no text for it");
  EXPECT_EQ(ToStatus(api, Result::kOutOfMemory, "").code(), collops::ERROR_OUT_OF_DEVICE_MEMORY);
}

TEST(AScopeLeavesTheThreadsContextAsItWas) {
  const DriverApi api = Api();
  driver = {};
  {
    const DeviceScope outer(api, 0);
    EXPECT_TRUE(driver.contexts == std::vector<Context>{ContextOf(0)});
    {
      const DeviceScope same(api, 0);
      EXPECT_EQ(driver.contexts.size(), 1u);
      const DeviceScope other(api, 1);
      EXPECT_TRUE(driver.contexts.back() == ContextOf(1));
    }
    EXPECT_TRUE(driver.contexts == std::vector<Context>{ContextOf(0)});
  }
  EXPECT_TRUE(driver.contexts.empty());
  const DeviceScope again(api, 1);
  EXPECT_EQ(driver.retained, 2);  // each once
  EXPECT_EQ(DeviceScope(api, 5).status().code(), collops::ERROR_INVALID_PARAM);
}

TEST(KernelsAreLoadedOnceInAContext) {
  UseFatbin();
  const DriverApi api = Api();
  driver = {};
  driver.contexts = {ContextOf(0)};
  driver.refused_function = ConvertArgs::kName;
  Kernels first(api);
  const Status refused = first.Load();
  EXPECT_TRUE(refused.message().find("collops_convert: cuModuleGetFunction") != std::string::npos);
  EXPECT_EQ(driver.modules, 0);
  EXPECT_FALSE(first.Launch(ReduceSlicesArgs{}, 0, LegacyStream()).ok());

  driver.refused_function.clear();
  driver.loaded_functions = 0;
  Kernels second(api);
  EXPECT_TRUE(first.Load().ok());
  EXPECT_TRUE(second.Load().ok());
  EXPECT_EQ(driver.modules, 1);
  EXPECT_EQ(driver.loaded_functions, static_cast<int>(kKernelKinds.size()));
  driver.contexts = {ContextOf(1)};
  EXPECT_TRUE(second.Load().ok());
  EXPECT_EQ(driver.modules, 2);
}

TEST(AGridFitsTheBytesAndTheDevice) {
  UseFatbin();
  const DriverApi api = Api();
  driver = {};
  driver.contexts = {ContextOf(0)};
  Kernels kernels(api);
  // Loaded by the test before, which knows the functions' names, or here.
  EXPECT_TRUE(kernels.Load().ok());
  ReduceSlicesArgs args = {};
  args.count = 77;
  args.rank_size = 3;
  EXPECT_TRUE(kernels.Launch(args, 0, LegacyStream()).ok());
  EXPECT_EQ(driver.grid, 1u);
  const unsigned int threads = driver.block;
  EXPECT_TRUE(kernels.Launch(args, 16 * threads + 1, LegacyStream()).ok());
  EXPECT_EQ(driver.grid, 2u);
  EXPECT_TRUE(kernels.Launch(args, int64_t{1} << 40, LegacyStream()).ok());
  EXPECT_EQ(driver.grid, 20u);  // 10 multiprocessors with 2 blocks each
}

TEST(BlocksThatWaitLeaveAMultiprocessorFree) {
  UseFatbin();
  const DriverApi api = Api();
  driver = {};
  driver.contexts = {ContextOf(0)};
  Kernels kernels(api);
  EXPECT_EQ(kernels.MostWaitingBlocks(), 1);  // not loaded
  EXPECT_TRUE(kernels.Load().ok());
  EXPECT_EQ(kernels.MostWaitingBlocks(), 9);
}

TEST(AGraphKeepsWhatItNeeds) {
  const DriverApi api = Api();
  Runtime runtime(api);
  for (const Result result : {Result::kSuccess, Result::kOutOfMemory}) {
    driver = {};
    driver.user_object = result;
    auto kept = std::make_shared<int>(3);
    const std::weak_ptr<int> seen = kept;
    runtime.KeepWithGraph(nullptr, std::move(kept));
    EXPECT_FALSE(seen.expired());
    driver.let_go(driver.held);  // here also what the driver refused: the test leaks nothing
    EXPECT_TRUE(seen.expired());
  }
}
