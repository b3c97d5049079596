#include "collops/kernels/cuda/compute/blaslt.h"

#include <unistd.h>

#include <mutex>
#include <string>

#include "collops/core/process/shared_library.h"

namespace collops::cuda {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

struct Folder {
  std::mutex mutex;
  std::string path;
};
Folder& GetFolder() {
  static Folder* const folder = new Folder;
  return *folder;
}

std::string FindBlas() {
  for (const char* const name : kNames) {
    if (dlopen(name, RTLD_NOW | RTLD_NOLOAD) != nullptr) return name;
  }
  Folder& folder = GetFolder();
  const std::lock_guard<std::mutex> lock(folder.mutex);
  for (const char* const name : {"/cu13/lib/libcublasLt.so.13", "/cublas/lib/libcublasLt.so.12"}) {
    const std::string path = folder.path + name;
    if (!folder.path.empty() && access(path.c_str(), R_OK) == 0) return path;
  }
  for (const char* const name : kNames) {
    if (dlopen(name, RTLD_NOW) != nullptr) return name;
  }
  return kNames[0];
}

struct Loaded {
  BlasApi api = {};
  Status status;

  Loaded() {
    SharedLibrary library("cuBLASLt", FindBlas().c_str());
    library.Find("cublasLtCreate", &api.create);
    library.Find("cublasLtGetStatusString", &api.get_status_string);
    library.Find("cublasLtGetVersion", &api.get_version);
    library.Find("cublasLtMatmulDescCreate", &api.desc_create);
    library.Find("cublasLtMatmulDescDestroy", &api.desc_destroy);
    library.Find("cublasLtMatmulDescSetAttribute", &api.desc_set);
    library.Find("cublasLtMatrixLayoutCreate", &api.layout_create);
    library.Find("cublasLtMatrixLayoutDestroy", &api.layout_destroy);
    library.Find("cublasLtMatmulPreferenceCreate", &api.preference_create);
    library.Find("cublasLtMatmulPreferenceDestroy", &api.preference_destroy);
    library.Find("cublasLtMatmulPreferenceSetAttribute", &api.preference_set);
    library.Find("cublasLtMatmulAlgoGetHeuristic", &api.choose);
    library.Find("cublasLtMatmulAlgoConfigGetAttribute", &api.get_attribute);
    library.Find("cublasLtMatmul", &api.matmul);
    status = library.status();
  }
};

}  // namespace

Status LoadBlas(const BlasApi** api) {
  static const Loaded* const loaded = new Loaded;
  *api = &loaded->api;
  return loaded->status;
}

void SetBlasPackages(const std::string& folder) {
  Folder& known = GetFolder();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.path = folder;
}

Status ToStatus(const BlasApi& api, BlasStatus status, const char* call) {
  if (status == BlasStatus::kSuccess) return Ok();
  const bool lacks = status == BlasStatus::kNotSupported || status == BlasStatus::kArchMismatch;
  return Error(lacks ? ERROR_UNSUPPORTED : ERROR_RT_FAIL, call,
               " failed: ", api.get_status_string(status), " (", static_cast<int>(status), ")");
}

}  // namespace collops::cuda
