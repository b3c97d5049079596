#include "collops/comm/backends/ucx/engine/symbols.h"

#include <dlfcn.h>

namespace collops::ucx {
namespace {

// Looks functions up, and keeps the name of the first one that is missing.
class Finder {
 public:
  explicit Finder(void* handle) : handle_(handle) {}

  template <typename Function>
  void Find(const char* symbol, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    if (*function == nullptr && missing_ == nullptr) missing_ = symbol;
  }

  const char* missing() const { return missing_; }

 private:
  void* handle_;
  const char* missing_ = nullptr;
};

void FindOfProcess(Finder* finder, Api* api) {
  finder->Find("ucp_get_version", &api->get_version);
  finder->Find("ucp_get_version_string", &api->get_version_string);
  finder->Find("ucs_status_string", &api->status_string);
  finder->Find("ucp_config_read", &api->config_read);
  finder->Find("ucp_config_modify", &api->config_modify);
  finder->Find("ucp_config_release", &api->config_release);
  finder->Find("ucp_init_version", &api->init_version);
  finder->Find("ucp_context_print_info", &api->context_print_info);
  finder->Find("ucp_cleanup", &api->cleanup);
}

void FindOfWorker(Finder* finder, Api* api) {
  finder->Find("ucp_worker_create", &api->worker_create);
  finder->Find("ucp_worker_destroy", &api->worker_destroy);
  finder->Find("ucp_worker_get_address", &api->worker_get_address);
  finder->Find("ucp_worker_release_address", &api->worker_release_address);
  finder->Find("ucp_worker_progress", &api->worker_progress);
  finder->Find("ucp_worker_get_efd", &api->worker_get_efd);
  finder->Find("ucp_worker_arm", &api->worker_arm);
  finder->Find("ucp_ep_create", &api->endpoint_create);
  finder->Find("ucp_ep_flush_nbx", &api->endpoint_flush);
  finder->Find("ucp_ep_close_nbx", &api->endpoint_close);
}

void FindOfRequests(Finder* finder, Api* api) {
  finder->Find("ucp_tag_send_nbx", &api->tag_send);
  finder->Find("ucp_tag_recv_nbx", &api->tag_receive);
  finder->Find("ucp_tag_recv_request_test", &api->receive_test);
  finder->Find("ucp_request_check_status", &api->request_check_status);
  finder->Find("ucp_request_cancel", &api->request_cancel);
  finder->Find("ucp_request_free", &api->request_free);
}

}  // namespace

Status FindFunctions(void* handle, Api* api) {
  Finder finder(handle);
  FindOfProcess(&finder, api);
  FindOfWorker(&finder, api);
  FindOfRequests(&finder, api);
  COLLOPS_CHECK_ARG(finder.missing() == nullptr, ERROR_UNSUPPORTED,
                    "backend ucx: this UCX has no function ", finder.missing(),
                    ": install one of 1.12 or newer, e.g. with `pip install 'collops[multihost]'`");
  return Ok();
}

}  // namespace collops::ucx
