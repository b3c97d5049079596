#include "comm/backends/backend_table.h"

#include "comm/backends/hccl/backend.h"
#include "comm/backends/shm/backend.h"
#include "comm/backends/ucx/backend.h"
#include "comm/backends/ucx/engine/library.h"
#include "comm/placement/job.h"
#include "comm/placement/rank_table/rank_table.h"

namespace collops {
namespace {

// For a backend that this version does not have: the vendor's library makes no difference.
Status EngineMissing(const char* backend, const char* library) {
  return Error(ERROR_UNSUPPORTED, "backend ", backend,
               ": not built in this version of collops, and ", library,
               " does not add it: use shm or hccl");
}

Status NcclAvailable() {
  return EngineMissing("nccl", "libnccl.so.2");
}
Status CudaAvailable() {
  return EngineMissing("cuda", "libcuda.so.1");
}

// For backends whose engine is not built in: the reason that available() gives.
Status CreateNothing(const CommunicatorSpec& spec, std::shared_ptr<Communicator>*) {
  return FindBackend(spec.backend)->available();
}

int64_t NoSharedBytes(int) {
  return 0;
}

}  // namespace

const std::vector<Backend>& BackendTable() {
  // Never destroyed: destructors of static objects still read it.
  static const std::vector<Backend>* const table = new std::vector<Backend>{
      {"hccl", hccl::Available, hccl::Create, hccl::SharedBytes, hccl::Describe, hccl::Adopt, "npu",
       hccl::kSums},
      {"nccl", NcclAvailable, CreateNothing, NoSharedBytes},
      {"cuda", CudaAvailable, CreateNothing, NoSharedBytes},
      {"shm", shm::Available, shm::Create, shm::SegmentBytes},
      {"ucx", ucx::Available, ucx::Create, ucx::SharedBytes, nullptr, nullptr, "cpu", "", "libucx",
       ucx::SetWheelFolder, ucx::ShownFacts},
  };
  return *table;
}

std::string CpuBackend(const RankTable* table) {
  if (table == nullptr) return DetectLauncher().spread == Spread::kHosts ? "ucx" : "shm";
  return !table->completed || table->servers.size() == 1 ? "shm" : "ucx";
}

const Backend* FindBackend(const std::string& name) {
  for (const Backend& backend : BackendTable()) {
    if (name == backend.name) return &backend;
  }
  return nullptr;
}

}  // namespace collops
