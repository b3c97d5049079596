#include "collops/comm/backends/backend_table.h"

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
    if (status.ok()) continue;  // a machine with CANN, or with a GPU
    EXPECT_EQ(status.code(), ERROR_UNSUPPORTED);
    EXPECT_CONTAINS(status.message(), "backend " + std::string(name) + ": ");
    EXPECT_CONTAINS(status.message(), "lib");
    CommunicatorSpec spec;
    spec.backend = name;
    std::shared_ptr<Communicator> communicator;
    const Status created = FindBackend(name)->create(spec, &communicator);
    EXPECT_EQ(created.code(), ERROR_UNSUPPORTED);
    EXPECT_EQ(created.message(), status.message());
    EXPECT_TRUE(communicator == nullptr);
  }
}
