// Calls of a communicator that are started now and waited for later.

#include <optional>
#include <utility>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/call_queue.h"
#include "collops/comm/call_scope.h"
#include "collops/comm/pairs/messenger.h"
#include "collops/core/trace/spans.h"

namespace collops {

// Runs alone, so that no call that was made without a turn is still running.
Status BackendCommunicator::MakeQueue(const char* name) {
  COLLOPS_RETURN_IF_ERROR(control_->CheckUsable(name));
  if (queue_.load(std::memory_order_acquire) != nullptr) return Ok();
  return control_->Alone(name, [&] {
    queue_owner_ = std::make_unique<CallQueue>(control_.get());
    if (messenger_ != nullptr) queue_owner_->SetMessenger(messenger_.get());
    queue_.store(queue_owner_.get(), std::memory_order_release);
    return Ok();
  });
}

Status Communicator::Start(const char* name, std::function<Status()> body, Handle* handle) {
  BackendCommunicator& group = backend();
  COLLOPS_RETURN_IF_ERROR(group.MakeQueue(name));
  auto call = std::make_shared<StartedCall>();
  call->name = name;
  call->body = std::move(body);
  const Status added = group.queue_.load(std::memory_order_acquire)->Add(call);
  if (added.code() == ERROR_OUT_OF_HOST_MEMORY) static_cast<void>(Refuse(name, added));
  COLLOPS_RETURN_IF_ERROR(added);
  *handle = std::move(call);
  return Ok();
}

// No message can be posted before first contact is complete, which is then the queue's first call.
Status Communicator::StartMessages(const CallName& name, const Transfer* list, int count,
                                   Handle* handle, KeepAlive keep, void* stream) {
  COLLOPS_RETURN_IF_ERROR(CheckTransfers(name.called, list, count, size()));
  BackendCommunicator& group = backend();
  if (HasMessagesOnStreams()) {
    return group.StartOnStream(name, list, count, stream, handle, std::move(keep));
  }
  COLLOPS_RETURN_IF_ERROR(group.MakeQueue(name.called));
  auto call = std::make_shared<StartedCall>();
  call->name = name.called;
  call->messages = std::make_shared<Batch>();
  call->messages->Set(name.called, list, count);
  call->messages->keep = std::move(keep);
  CallQueue* const queue = group.queue_.load(std::memory_order_acquire);
  if (group.connected_.load(std::memory_order_acquire)) {
    std::optional<CallQueue::Caller> caller;
    if (!queue->RunsHere()) caller.emplace(queue);
    if (caller && !caller->alone()) return group.control_->SecondThread(name.called);
    COLLOPS_RETURN_IF_ERROR(group.CheckMessages(name.called));
    COLLOPS_RETURN_IF_ERROR(queue->LookAfterMessages(name.called));
    group.messenger_->Start(call->messages);
  } else {
    call->body = [&group, started = call.get()] { return group.ConnectAndPost(started); };
    COLLOPS_RETURN_IF_ERROR(queue->Add(call));
  }
  *handle = std::move(call);
  return Ok();
}

Status BackendCommunicator::ConnectAndPost(StartedCall* call) {
  CallScope scope(this, call->name, CallScope::Kind::kUntraced);
  return scope.Run([&]() -> Status {
    const Status carried = CheckMessages(call->name);
    if (!carried.ok()) return control_->KeepGroupAfter(carried);
    messenger_->Start(call->messages);
    return Ok();
  });
}

// On a device they are a call of the queue, which ends when they are on the stream.
Status BackendCommunicator::StartOnStream(const CallName& name, const Transfer* list, int count,
                                          void* stream, Handle* handle, KeepAlive keep) {
  const std::vector<Transfer> messages(list, list + count);
  const auto body = [this, name, messages, stream, keep]() -> Status {
    std::vector<Transfer> copy = messages;
    return Messages(name, copy.data(), static_cast<int>(copy.size()), stream);
  };
  COLLOPS_RETURN_IF_ERROR(Start(name.called, body, handle));
  for (const Transfer& transfer : messages) {
    const bool receives = transfer.way == Transfer::kRecv;
    (*handle)->sources.push_back(receives ? transfer.peer : -1);
  }
  return Ok();
}

Status Communicator::Wait(const Handle& handle, double timeout_s, std::vector<int>* sources) {
  BackendCommunicator& group = backend();
  if (group.control_->Inherited()) return group.control_->CheckUsable("Wait");
  CallQueue* const queue = group.queue_.load(std::memory_order_acquire);
  COLLOPS_CHECK_ARG(queue != nullptr && handle != nullptr, ERROR_INVALID_PARAM,
                    "Wait: this communicator has started no such call");
  std::optional<recording::CallSpan> span;
  if (recording::On()) span.emplace(group.lane(), "wait");
  std::optional<Deadline> deadline;
  if (timeout_s > 0) deadline = Deadline::After(timeout_s);
  COLLOPS_RETURN_IF_ERROR(queue->Wait(handle.get(), timeout_s));
  Batch* const batch = handle->messages.get();
  if (batch == nullptr) {
    if (sources != nullptr) *sources = handle->sources;
    return Ok();
  }
  const Status outcome = group.messenger_->Wait(batch, deadline);
  for (const OpenTransfer& open : batch->list) {
    if (sources != nullptr) sources->push_back(open.source);
  }
  return outcome;
}

bool Communicator::Test(const Handle& handle) {
  BackendCommunicator& group = backend();
  if (group.control_->Inherited()) return false;
  CallQueue* const queue = group.queue_.load(std::memory_order_acquire);
  if (queue == nullptr || handle == nullptr || !queue->Done(*handle)) return false;
  Batch* const batch = handle->messages.get();
  return batch == nullptr || group.messenger_ == nullptr || group.messenger_->Test(batch);
}

void Communicator::EndStarted() {
  BackendCommunicator& group = backend();
  if (group.control_->Inherited()) return;
  const bool connected = group.connected_.load(std::memory_order_acquire);
  if (connected && group.messenger_ != nullptr) group.messenger_->End(group.control_->Failure());
  CallQueue* const queue = group.queue_.load(std::memory_order_acquire);
  if (queue != nullptr) queue->Stop();
}

}  // namespace collops
