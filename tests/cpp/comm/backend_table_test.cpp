#include "comm/backends/backend_table.h"

#include <memory>
#include <string>

#include "check.h"

namespace {

using collops::BackendTable;
using collops::Communicator;
using collops::CommunicatorSpec;
using collops::ERROR_UNSUPPORTED;
using collops::FindBackend;
using collops::Status;

}  // namespace

TEST(TheTableHoldsEveryBackendOnce) {
  std::string names;
  for (const collops::Backend& backend : BackendTable()) {
    names += std::string(backend.name) + " ";
    EXPECT_TRUE(FindBackend(backend.name) == &backend);
  }
  EXPECT_EQ(names, std::string("hccl nccl cuda shm ucx "));
}

TEST(OtherNamesAreNotFound) {
  for (const char* name : {"", "SHM", "shm ", "lccl", "mc2"}) {
    EXPECT_TRUE(FindBackend(name) == nullptr);
  }
}

TEST(ShmIsAvailableOnLinux) {
  EXPECT_EQ(FindBackend("shm")->available().message(), "");
}

TEST(BackendsWithoutAnEngineSayWhy) {
  for (const char* name : {"hccl", "nccl", "cuda"}) {
    const Status status = FindBackend(name)->available();
    if (status.ok() && name == std::string("hccl")) continue;  // a machine with CANN
    EXPECT_EQ(status.code(), ERROR_UNSUPPORTED);
    const std::string why = name == std::string("hccl") ? "lib" : "not built in this version";
    EXPECT_CONTAINS(status.message(), "backend " + std::string(name) + ": " + why);
    CommunicatorSpec spec;
    spec.backend = name;
    std::shared_ptr<Communicator> communicator;
    const Status created = FindBackend(name)->create(spec, &communicator);
    EXPECT_EQ(created.code(), ERROR_UNSUPPORTED);
    EXPECT_EQ(created.message(), status.message());
    EXPECT_TRUE(communicator == nullptr);
  }
}

TEST(AnEngineThatIsNotBuiltInNamesTheLibraryThatDoesNotAddIt) {
  const char* const libraries[][2] = {{"nccl", "libnccl.so.2"}, {"cuda", "libcuda.so.1"}};
  for (const auto& [name, library] : libraries) {
    EXPECT_EQ(FindBackend(name)->available().message(),
              std::string("backend ") + name + ": not built in this version of collops, and " +
                  library + " does not add it: use shm or hccl");
  }
}
