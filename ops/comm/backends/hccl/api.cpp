#include "comm/backends/hccl/api.h"

#include <dlfcn.h>

namespace collops::hccl {
namespace {

constexpr const char* kHccl = "libhccl.so";
constexpr const char* kAscendCl = "libascendcl.so";

// One library of CANN, and the first error in loading it.
class Library {
 public:
  explicit Library(const char* name) : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
    if (handle_ == nullptr) status_ = Missing(name_);
  }

  template <typename Function>
  void Find(const char* symbol, Function* function) {
    FindIfThere(symbol, function);
    if (*function == nullptr && status_.ok()) status_ = Missing(symbol);
  }

  // Leaves the pointer null if the library is too old to have the function.
  template <typename Function>
  void FindIfThere(const char* symbol, Function* function) {
    if (handle_ == nullptr) return;
    *function = reinterpret_cast<Function>(dlsym(handle_, symbol));
  }

  const Status& status() const { return status_; }

 private:
  static Status Missing(const char* what) {
    const char* const reason = dlerror();
    return Error(ERROR_UNSUPPORTED, "backend hccl: ", reason == nullptr ? what : reason);
  }

  const char* name_;
  void* handle_;
  Status status_;
};

// Never unloaded: CANN has threads of its own.
struct Loaded {
  Api api = {};
  Status status;

  Loaded() {
    Library hccl(kHccl);
    FindHccl(&hccl);
    Library acl(kAscendCl);
    FindAcl(&acl);
    status = hccl.status().ok() ? acl.status() : hccl.status();
  }

  void FindHccl(Library* library) {
    library->Find("HcclGetRootInfo", &api.get_root_info);
    library->Find("HcclCommInitRootInfo", &api.comm_init_root_info);
    library->Find("HcclCommDestroy", &api.comm_destroy);
    library->Find("HcclGetRankSize", &api.get_rank_size);
    library->Find("HcclGetRankId", &api.get_rank_id);
    library->Find("HcclGetCommName", &api.get_comm_name);
    library->Find("HcclGetCommAsyncError", &api.get_comm_async_error);
    library->Find("HcclAllGatherV", &api.all_gather_v);
    library->Find("HcclReduceScatterV", &api.reduce_scatter_v);
  }

  void FindAcl(Library* library) {
    library->Find("aclrtGetDevice", &api.get_device);
    library->Find("aclrtSetDevice", &api.set_device);
    library->Find("aclrtMemsetAsync", &api.memset_async);
    library->Find("aclrtCreateEvent", &api.create_event);
    library->Find("aclrtDestroyEvent", &api.destroy_event);
    library->Find("aclrtRecordEvent", &api.record_event);
    library->Find("aclrtQueryEventStatus", &api.query_event_status);
    library->Find("aclGetRecentErrMsg", &api.get_recent_error);
    library->FindIfThere("aclmdlRICaptureGetInfo", &api.capture_get_info);
    library->FindIfThere("aclmdlRIDestroyRegisterCallback", &api.on_graph_destroyed);
  }
};

}  // namespace

Status Load(const Api** api) {
  static const Loaded* const loaded = new Loaded;
  *api = &loaded->api;
  return loaded->status;
}

}  // namespace collops::hccl
