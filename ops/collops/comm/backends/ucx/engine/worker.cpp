#include "collops/comm/backends/ucx/engine/worker.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "collops/comm/backends/ucx/schedule.h"

// How a worker ends what is pending, and itself.
namespace collops::ucx {
namespace {

constexpr uint64_t kWholeTag = ~uint64_t{0};
constexpr const char* kNetworkHint = "; UCX_NET_DEVICES and UCX_TLS choose the network";

// UCX calls a message of several fragments sent while the last one may be in a buffer of its own,
// which only this rank's progress empties. It says so at once of a message that is one fragment
// only if the system has all of it; later, when the message had to queue, the buffer may have it,
// too. The buffer has one fragment: when an empty message that follows has been taken, the one
// before has left.
const uint64_t kEndTag = Tag{}.Of(TagKind::kEnd);

RequestParam HostMemory() {
  RequestParam param = {};
  param.op_attr_mask = kRequestMemoryType;
  param.memory_type = MemoryType::kHost;
  return param;
}

}  // namespace

Request::~Request() {
  if (pending()) worker_->End(this);
}

Status Worker::Create(int peers, std::unique_ptr<Worker>* worker) {
  const Library* library = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&library));
  std::unique_ptr<Worker> made(new Worker(*library, peers));
  COLLOPS_RETURN_IF_ERROR(made->Open());
  *worker = std::move(made);
  return Ok();
}

Status Worker::Open() {
  COLLOPS_RETURN_IF_ERROR(context_.Open(*library_, static_cast<int>(peers_.size())));
  WorkerParams params = {};
  params.field_mask = kWorkerThreadMode;
  params.thread_mode = ThreadMode::kSerialized;
  Result result = library_->api.worker_create(context_.handle(), &params, &handle_);
  if (result != Result::kOk) handle_ = nullptr;
  COLLOPS_CHECK_ARG(result == Result::kOk, ERROR_RT_FAIL,
                    "backend ucx: ucp_worker_create: ", Explain(*library_, result));
  result = library_->api.worker_get_efd(handle_, &descriptor_);
  COLLOPS_CHECK_ARG(
      result == Result::kOk, ERROR_UNSUPPORTED,
      "backend ucx: these transports cannot wake a rank that sleeps (ucp_worker_get_efd: ",
      Explain(*library_, result), "): choose others in UCX_TLS");
  COLLOPS_RETURN_IF_ERROR(ReadAddress());
  TakeEnds();
  return StatusOf(ends_);
}

Status Worker::ReadAddress() {
  AddressObject* address = nullptr;
  size_t bytes = 0;
  const Result result = library_->api.worker_get_address(handle_, &address, &bytes);
  COLLOPS_CHECK_ARG(result == Result::kOk, ERROR_RT_FAIL,
                    "backend ucx: ucp_worker_get_address: ", Explain(*library_, result));
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  library_->api.worker_release_address(handle_, address);
  return Ok();
}

Status Worker::CheckUsable() const {
  COLLOPS_CHECK_ARG(generation_ == ForkGeneration(), ERROR_RT_FAIL,
                    "backend ucx: the connections belong to the parent process of a fork");
  COLLOPS_CHECK_ARG(handle_ != nullptr, ERROR_ABORTED, "backend ucx: the connections are closed");
  return Ok();
}

Status Worker::Connect(int peer) {
  COLLOPS_RETURN_IF_ERROR(CheckUsable());
  Connection& connected = peers_[static_cast<size_t>(peer)];
  if (connected.endpoint != nullptr) return Ok();
  COLLOPS_CHECK_ARG(!connected.address.empty(), ERROR_RT_FAIL, "backend ucx: peer ", peer,
                    " is not connected");
  connected.worker = this;
  EndpointParams params = {};
  params.field_mask = kEndpointAddress | kEndpointErrorMode | kEndpointErrorHandler;
  params.address = reinterpret_cast<const AddressObject*>(connected.address.data());
  params.error_mode = ErrorMode::kPeer;
  params.error_handler = {OnError, &connected};
  const Result result = library_->api.endpoint_create(handle_, &params, &connected.endpoint);
  if (result == Result::kOk) {
    connected.address.clear();
    return Ok();
  }
  connected.endpoint = nullptr;
  // The system may say at once that nobody listens there any more.
  if (result == Result::kUnreachable) OnError(&connected, nullptr, result);
  return Error(ERROR_RT_FAIL, "backend ucx: peer ", peer,
               " cannot be reached from here: ", Explain(*library_, result), kNetworkHint);
}

int Worker::num_connected() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(), [](const Connection& peer) {
    return peer.endpoint != nullptr;
  }));
}

void Worker::OnError(void* peer, Endpoint, Result result) {
  Connection& lost = *static_cast<Connection*>(peer);
  if (!lost.lost) ++lost.worker->losses_;
  lost.lost = true;
  lost.reason = result;
}

Status Worker::Send(int peer, uint64_t tag, const void* data, size_t bytes, Request* request,
                    SendDone done) {
  COLLOPS_RETURN_IF_ERROR(CheckUsable());
  Connection& to = peers_[static_cast<size_t>(peer)];
  if (to.lost) return LossOf(peer);
  if (to.endpoint == nullptr) COLLOPS_RETURN_IF_ERROR(Connect(peer));
  const RequestParam param = HostMemory();
  to.used = true;
  COLLOPS_RETURN_IF_ERROR(Start(library_->api.tag_send(to.endpoint, data, bytes, tag, &param), peer,
                                false, bytes, request));
  const bool queued = request->pending();
  request->hands_over_ =
      done == SendDone::kHandedOver && (queued || static_cast<int64_t>(bytes) > kFragmentBytes);
  if (!queued && request->hands_over_) SendEnd(request);
  return Ok();
}

// An empty message, after which the request is done. If it cannot be sent, a loss says so.
void Worker::SendEnd(Request* request) {
  request->hands_over_ = false;
  const Endpoint endpoint = peers_[static_cast<size_t>(request->peer_)].endpoint;
  if (endpoint == nullptr) return;
  const RequestParam param = HostMemory();
  void* const started = library_->api.tag_send(endpoint, nullptr, 0, kEndTag, &param);
  static_cast<void>(Start(started, request->peer_, false, request->bytes_, request));
}

// Nobody waits for the empty messages of other ranks, so that they are not kept either.
void Worker::TakeEnds() {
  while (ends_.result_ == Result::kOk && Test(&ends_)) {
    if (!Receive(0, kEndTag, nullptr, 0, &ends_).ok()) break;
  }
}

Status Worker::Receive(int peer, uint64_t tag, void* data, size_t bytes, Request* request) {
  COLLOPS_RETURN_IF_ERROR(CheckUsable());
  ReceiveInfo info = {tag, bytes};
  RequestParam param = HostMemory();
  param.op_attr_mask |= kRequestReceiveInfo;
  param.receive_info = &info;  // written only if the message is already here
  void* const started = library_->api.tag_receive(handle_, data, bytes, tag, kWholeTag, &param);
  return Start(started, peer, true, info.length, request);
}

Status Worker::Start(void* started, int peer, bool receives, size_t bytes, Request* request) {
  request->worker_ = this;
  request->peer_ = peer;
  request->receives_ = receives;
  request->hands_over_ = false;
  request->bytes_ = bytes;
  request->result_ = Result::kOk;
  if (!IsRequest(started)) {
    request->result_ = ResultOf(started);
    return StatusOf(*request);
  }
  request->handle_ = started;
  request->previous_ = nullptr;
  request->next_ = pending_;
  if (pending_ != nullptr) pending_->previous_ = request;
  pending_ = request;
  return Ok();
}

void Worker::Finish(Request* request, Result result) {
  library_->api.request_free(request->handle_);
  request->handle_ = nullptr;
  request->result_ = result;
  if (request->next_ != nullptr) request->next_->previous_ = request->previous_;
  Request*& before = request->previous_ != nullptr ? request->previous_->next_ : pending_;
  before = request->next_;
}

bool Worker::Progress() {
  if (!IsMine() || library_->api.worker_progress(handle_) == 0) return false;
  TakeEnds();
  return true;
}

bool Worker::Test(Request* request) {
  if (!request->pending()) return true;
  if (!IsMine()) return false;
  ReceiveInfo info = {0, request->bytes_};
  const Result result = request->receives_ ? library_->api.receive_test(request->handle_, &info)
                                           : library_->api.request_check_status(request->handle_);
  if (result == Result::kInProgress) return false;
  request->bytes_ = info.length;
  Finish(request, result);
  if (result == Result::kOk && request->hands_over_) SendEnd(request);
  return !request->pending();
}

Status Worker::StatusOf(const Request& request) const {
  if (request.result_ == Result::kOk) return Ok();
  const bool ended = request.result_ == Result::kCanceled;
  if (!ended && IsLost(request.peer_)) return LossOf(request.peer_);
  const bool reset = request.result_ == Result::kConnectionReset;
  return Error(ended   ? ERROR_ABORTED
               : reset ? ERROR_PEER_LOST
                       : ERROR_RT_FAIL,
               "backend ucx: a message ", request.receives_ ? "from" : "to", " peer ",
               request.peer_, " failed: ", Explain(*library_, request.result_));
}

Status Worker::Loss() const {
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].lost) return LossOf(static_cast<int>(i));
  }
  return Ok();
}

Status Worker::LossOf(int peer) const {
  const Result reason = peers_[static_cast<size_t>(peer)].reason;
  // Nobody listens there any more, or this network does not lead there.
  return Error(ERROR_PEER_LOST, "backend ucx: the connection to peer ", peer,
               " has ended: ", Explain(*library_, reason),
               reason == Result::kUnreachable ? kNetworkHint : "");
}

Status Worker::TimedOut(const char* what, const Deadline& deadline) {
  return Error(ERROR_TIMEOUT, "backend ucx: ", what, ": not done after ", deadline.timeout_s(),
               " s");
}

// Busy: something has arrived since the last progress.
int Worker::Arm() {
  return IsMine() && library_->api.worker_arm(handle_) == Result::kOk ? descriptor_ : -1;
}

void Worker::Sleep(const Watch& watch, control::MessageProgress progress,
                   const Deadline& deadline) {
  std::vector<pollfd> descriptors = watch.descriptors;
  double nap_s = watch.nap_s;
  if (progress != control::MessageProgress::kNothing) {
    const control::WakeCondition wake_condition = watch.duties->wake_condition();
    if (wake_condition.most_ms == 0) return;
    descriptors.push_back({wake_condition.descriptor, POLLIN, 0});
    nap_s = std::min(nap_s, wake_condition.most_ms * 1e-3);
  }
  if (Arm() < 0) return;
  descriptors.push_back({descriptor_, POLLIN, 0});
  nap_s = std::clamp(deadline.RemainingS(), 0.0, nap_s);
  poll(descriptors.data(), descriptors.size(), static_cast<int>(std::ceil(nap_s * 1000)));
}

void Worker::Sleep(const control::WakeCondition& wake_condition) {
  if (Arm() < 0) return;
  pollfd descriptors[] = {{descriptor_, POLLIN, 0}, {wake_condition.descriptor, POLLIN, 0}};
  poll(descriptors, std::size(descriptors), wake_condition.most_ms);
}

Status Worker::Flush(const Deadline& deadline) {
  COLLOPS_RETURN_IF_ERROR(CheckUsable());
  const RequestParam param = {};
  const auto requests = std::make_unique<Request[]>(peers_.size());
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Connection& peer = peers_[i];
    if (!peer.used || peer.lost || peer.endpoint == nullptr) continue;
    void* const started = library_->api.endpoint_flush(peer.endpoint, &param);
    // A peer that is lost meanwhile is no reason to leave out the others.
    (void)Start(started, static_cast<int>(i), false, 0, &requests[i]);
  }
  const auto done = [&] {
    return std::all_of(requests.get(), requests.get() + peers_.size(),
                       [&](Request& request) { return Test(&request); });
  };
  const Watch watch = {{}, [] { return Ok(); }};
  return Until("handing messages over to the network", done, watch, deadline);
}

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
void Worker::CloseEndpoint(Connection* peer) {
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
  for (Connection& peer : peers_) CloseEndpoint(&peer);
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
