#include "collops/comm/backends/backend_table.h"

#include <string>

#include "check.h"

namespace {

using collops::BackendTable;
using collops::FindBackend;

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
