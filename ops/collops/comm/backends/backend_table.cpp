#include "collops/comm/backends/backend_table.h"

#include "collops/comm/backends/cuda/backend.h"
#include "collops/comm/backends/hccl/backend.h"
#include "collops/comm/backends/nccl/backend.h"
#include "collops/comm/backends/nccl/library.h"
#include "collops/comm/backends/shm/backend.h"
#include "collops/comm/backends/ucx/backend.h"
#include "collops/comm/backends/ucx/engine/library.h"

namespace collops {

const std::vector<Backend>& BackendTable() {
  // Never destroyed: destructors of static objects still read it.
  static const std::vector<Backend>* const table = new std::vector<Backend>{
      {"hccl", hccl::Available, hccl::Create, hccl::SharedBytes, hccl::Describe, hccl::Adopt, "npu",
       hccl::kSums, "", nullptr, hccl::ShownFacts, nullptr, hccl::SocName},
      {"nccl", nccl::Available, nccl::Create, nccl::SharedBytes, nccl::Describe, nccl::Adopt,
       "cuda", "", "nvidia.nccl", nccl::SetWheelFolder, nccl::ShownFacts},
      {"cuda", cuda_peers::Available, cuda_peers::Create, cuda_peers::SharedBytes, nullptr, nullptr,
       "cuda", "", "", nullptr, cuda_peers::ShownFacts},
      {"shm", shm::Available, shm::Create, shm::SegmentBytes},
      {"ucx", ucx::Available, ucx::Create, ucx::SharedBytes, nullptr, nullptr, "cpu", "", "libucx",
       ucx::SetWheelFolder, ucx::ShownFacts, ucx::Predict, nullptr, ucx::Decline},
  };
  return *table;
}

const Backend* FindBackend(const std::string& name) {
  for (const Backend& backend : BackendTable()) {
    if (name == backend.name) return &backend;
  }
  return nullptr;
}

}  // namespace collops
