#include "collops/comm/backends/hccl/compute/aclnn.h"

#include "collops/core/process/shared_library.h"

namespace collops::hccl {
namespace {

constexpr const char* kUser = "backend hccl";

struct Loaded {
  Aclnn aclnn = {};
  Status status;

  Loaded() {
    SharedLibrary base(kUser, "libnnopbase.so");
    base.Find("aclCreateTensor", &aclnn.create_tensor);
    base.Find("aclDestroyTensor", &aclnn.destroy_tensor);
    base.Find("aclCreateScalar", &aclnn.create_scalar);
    base.Find("aclDestroyScalar", &aclnn.destroy_scalar);
    SharedLibrary operators(kUser, "libopapi.so");
    operators.Find("aclnnMatmulGetWorkspaceSize", &aclnn.matmul_size);
    operators.Find("aclnnMatmul", &aclnn.matmul);
    operators.Find("aclnnCastGetWorkspaceSize", &aclnn.cast_size);
    operators.Find("aclnnCast", &aclnn.cast);
    operators.Find("aclnnAddGetWorkspaceSize", &aclnn.add_size);
    operators.Find("aclnnAdd", &aclnn.add);
    status = base.status().ok() ? operators.status() : base.status();
  }
};

}  // namespace

Status LoadAclnn(const Aclnn** aclnn) {
  static const Loaded* const loaded = new Loaded;
  *aclnn = &loaded->aclnn;
  return loaded->status;
}

}  // namespace collops::hccl
