#include "collops/comm/streams/stream_engine.h"

#include "collops/core/deadline.h"

namespace collops {

Status StreamEngine::CheckHealth() {
  const Status status = AsyncError();
  if (status.ok()) return Ok();
  const std::string calls = calls_.NamesAhead();
  return Error(status.code(), "an earlier call failed", calls.empty() ? "" : ", ", calls, ": ",
               status.message());
}

bool StreamEngine::IsIdle(int device) {
  if (calls_.empty()) return true;
  bool idle = true;
  static_cast<void>(OnDevice(device, [&] { idle = calls_.IsIdle(); }));
  return idle;
}

bool StreamEngine::Release(int device) {
  if (!connected() && calls_.empty()) {
    LetGo(true);
    return true;
  }
  bool past = false;
  const Status reached = OnDevice(device, [&] {
    past = calls_.Drain(Deadline::After(Patience())).ok();
    LetGo(past);
  });
  if (!reached.ok()) LetGo(false);
  return past;
}

}  // namespace collops
