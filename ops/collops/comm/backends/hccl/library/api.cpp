#include "collops/comm/backends/hccl/library/api.h"

#include "collops/core/process/shared_library.h"

namespace collops::hccl {
namespace {

constexpr const char* kUser = "backend hccl";
constexpr const char* kHccl = "libhccl.so";
constexpr const char* kAscendCl = "libascendcl.so";

struct Loaded {
  Api api = {};
  Status status;

  Loaded() {
    SharedLibrary hccl(kUser, kHccl);
    FindHccl(&hccl);
    SharedLibrary acl(kUser, kAscendCl);
    FindAcl(&acl);
    status = hccl.status().ok() ? acl.status() : hccl.status();
  }

  void FindHccl(SharedLibrary* library) {
    library->Find("HcclGetRootInfo", &api.get_root_info);
    library->Find("HcclCommInitRootInfo", &api.comm_init_root_info);
    library->Find("HcclCommDestroy", &api.comm_destroy);
    library->Find("HcclGetRankSize", &api.get_rank_size);
    library->Find("HcclGetRankId", &api.get_rank_id);
    library->Find("HcclGetCommName", &api.get_comm_name);
    library->Find("HcclGetCommAsyncError", &api.get_comm_async_error);
    library->FindIfThere("HcclCommInitRootInfoConfig", &api.comm_init_root_info_config);
    library->FindIfThere("HcclCommInitClusterInfo", &api.comm_init_cluster_info);
    library->FindIfThere("HcclCreateSubCommConfig", &api.create_sub_comm);
    library->FindIfThere("HcclAllGatherV", &api.all_gather_v);
    library->FindIfThere("HcclReduceScatterV", &api.reduce_scatter_v);
    library->Find("HcclAllGather", &api.all_gather);
    library->Find("HcclReduceScatter", &api.reduce_scatter);
    library->Find("HcclAllReduce", &api.all_reduce);
    library->Find("HcclReduce", &api.reduce);
    library->Find("HcclBroadcast", &api.broadcast);
    library->Find("HcclAlltoAllV", &api.all_to_all_v);
    library->Find("HcclSend", &api.send);
    library->Find("HcclRecv", &api.recv);
    library->Find("HcclBatchSendRecv", &api.batch_send_recv);
    library->Find("HcclBarrier", &api.barrier);
  }

  void FindAcl(SharedLibrary* library) {
    library->Find("aclrtGetDevice", &api.get_device);
    library->Find("aclrtSetDevice", &api.set_device);
    library->Find("aclrtMemsetAsync", &api.memset_async);
    library->Find("aclrtMemcpyAsync", &api.memcpy_async);
    library->Find("aclrtMalloc", &api.malloc);
    library->Find("aclrtFree", &api.free);
    library->Find("aclrtGetSocName", &api.get_soc_name);
    library->Find("aclrtCreateStream", &api.create_stream);
    library->Find("aclrtDestroyStream", &api.destroy_stream);
    library->Find("aclrtStreamWaitEvent", &api.stream_wait_event);
    library->Find("aclrtCreateEvent", &api.create_event);
    library->FindIfThere("aclrtCreateEventExWithFlag", &api.create_event_ex);
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
