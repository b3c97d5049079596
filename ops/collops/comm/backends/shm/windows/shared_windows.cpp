#include "collops/comm/backends/shm/windows/shared_windows.h"

namespace collops::shm {

bool SharedWindows::Find(const void* data, int64_t bytes, uint32_t* id, int64_t* offset) {
  WindowSpot spot;
  if (!table_->Find(data, bytes, &spot)) return false;
  *id = spot.id;
  *offset = spot.offset;
  return true;
}

// If the window was announced before, its mail is an earlier one, which peers read first.
Status SharedWindows::Announce(uint32_t id, bool* told, uint64_t* mails) {
  COLLOPS_RETURN_IF_ERROR(mail_->TrySend(table_, id, told));
  *mails = mail_->sent();
  return Ok();
}

Status SharedWindows::Locate(int peer, uint32_t id, int64_t offset, int64_t bytes, uint64_t mails,
                             const std::byte** data) {
  *data = nullptr;
  const bool own = peer == endpoint_->rank();
  if (!own && mail_->received(peer) < mails) mail_->Drain();
  if (!own && mail_->received(peer) < mails) return Ok();
  if (own) {
    *data = table_->Address({id, offset}, bytes);
  } else {
    located_ = mail_->Find(peer, id);
    *data = WindowMail::Range(located_, offset, bytes);
  }
  if (*data != nullptr) return Ok();
  if (!own) COLLOPS_RETURN_IF_ERROR(mail_->WhyNotMapped(peer, id));
  return Error(ERROR_PEER_LOST, "Send and Recv: ", endpoint_->Who(peer), " announced ", bytes,
               " bytes in window ", id, " at ", offset, ", which it has not shared");
}

Status SharedWindows::Make(int64_t bytes, RingWindow* window) {
  std::shared_ptr<Window> made;
  COLLOPS_RETURN_IF_ERROR(table_->Allocate(bytes, &made));
  WindowSpot spot;
  static_cast<void>(table_->Find(made->data(), bytes, &spot));  // true: it has just been made
  *window = {spot.id, static_cast<std::byte*>(made->data()), made};
  return Ok();
}

}  // namespace collops::shm
