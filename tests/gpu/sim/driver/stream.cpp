#include "driver/stream.h"

#include <map>
#include <string>

namespace collops_sim {
namespace {

thread_local std::map<Context*, Stream*> own_streams;

Stream* OwnOfThread(Context* context) {
  Stream*& own = own_streams[context];
  if (own == nullptr) own = CreateStream(context, Stream::Order::kBlocking);
  return own;
}

}  // namespace

Result FindStream(void* handle, Stream** stream) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  Context* const context = CurrentContext();
  if (number <= 2 && context == nullptr) {
    return Refuse(kInvalidContext, "a default stream without a current context");
  }
  if (number <= 2) {
    *stream = number == 2 ? OwnOfThread(context) : DefaultStream(context);
    return Result::kSuccess;
  }
  *stream = KnownStream(handle);
  if (*stream != nullptr) return Result::kSuccess;
  return Refuse(kInvalidHandle, "there is no such stream");
}

Result FindHere(void* handle, Stream** stream) {
  const Result result = FindStream(handle, stream);
  if (result != Result::kSuccess || (*stream)->home() == CurrentContext()) return result;
  return Refuse(kInvalidHandle, "the stream is not one of the current context");
}

Result Synchronize(Stream* stream) {
  if (stream->Finish(TimeoutS())) return stream->error();
  Mistake("the host has waited for a stream for " + std::to_string(TimeoutS()) + " s");
  return kLaunchTimeout;
}

}  // namespace collops_sim
