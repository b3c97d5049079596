// How a worker ends what is pending, and itself.
#include "collops/comm/backends/ucx/engine/worker.h"

namespace collops::ucx {
namespace {

// How long UCX may take to give back what was ended.
constexpr double kEndS = 0.25;

}  // namespace

template <typename Done>
bool Worker::ProgressUntil(Done&& done) {
  const Deadline limit = Deadline::After(kEndS);
  while (!done()) {
    if (!Progress() && limit.Passed()) return false;
  }
  return true;
}

void Worker::End(Request* request) {
  if (!request->pending()) return;
  if (!IsMine()) {  // of the parent of a fork
    request->handle_ = nullptr;
    return;
  }
  if (request->receives_) {
    library_->api.request_cancel(handle_, request->handle_);
  } else {
    CloseEndpoint(&peers_[static_cast<size_t>(request->peer_)]);
  }
  // A receive that has begun cannot be cancelled, and may never be complete: then all must end.
  if (!ProgressUntil([&] { return Test(request); })) Close();
}

// By force: an orderly end would wait for the peer.
void Worker::CloseEndpoint(Peer* peer) {
  if (peer->endpoint == nullptr) return;
  RequestParam param = {};
  param.op_attr_mask = kRequestFlags;
  param.flags = kCloseForce;
  void* const closing = library_->api.endpoint_close(peer->endpoint, &param);
  peer->endpoint = nullptr;
  if (!IsRequest(closing)) return;
  ProgressUntil([&] { return library_->api.request_check_status(closing) != Result::kInProgress; });
  library_->api.request_free(closing);
}

void Worker::Close() {
  if (!IsMine()) {
    for (; pending_ != nullptr; pending_ = pending_->next_) pending_->handle_ = nullptr;
    handle_ = nullptr;
    return;
  }
  for (Request* request = pending_; request != nullptr; request = request->next_) {
    if (request->receives_) library_->api.request_cancel(handle_, request->handle_);
  }
  for (Peer& peer : peers_) CloseEndpoint(&peer);
  ProgressUntil([&] {
    for (Request* request = pending_; request != nullptr;) {
      Request* const next = request->next_;
      Test(request);
      request = next;
    }
    return pending_ == nullptr;
  });
  // Without the worker nothing writes into the memory of what is left.
  while (pending_ != nullptr) Finish(pending_, Result::kCanceled);
  library_->api.worker_destroy(handle_);
  handle_ = nullptr;
  descriptor_ = -1;
  context_.Close();
}

}  // namespace collops::ucx
