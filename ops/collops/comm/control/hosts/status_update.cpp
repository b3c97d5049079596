#include "collops/comm/control/hosts/watcher.h"

#include <algorithm>
#include <cstring>

namespace collops::control {
namespace {

// A frame: FrameHead, then the text, the agreement and the shared bytes.
struct FrameHead {
  // Changes with the contents of a board, so that hosts with different versions refuse each other.
  static constexpr uint32_t kMagic = 0x6e657733 + (Agreement::kMaxWords << 16) + kShareBytes;

  uint32_t magic;
  StatusKind kind;
  int32_t rank;
  int32_t code;
  uint32_t text_bytes;
  uint16_t has_agreement;
  uint16_t has_shared;
  uint64_t step;
  uint64_t digest;
  uint64_t balance;
};

void Append(const void* data, size_t bytes, Frame* frame) {
  const auto* const begin = static_cast<const std::byte*>(data);
  frame->insert(frame->end(), begin, begin + bytes);
}

size_t AgreementBytes(int rank_size) {
  return static_cast<size_t>(Agreement::EncodedBytes(rank_size));
}

bool IsKnown(StatusKind kind) {
  switch (kind) {
    case StatusKind::kHeartbeat:
    case StatusKind::kHead:
    case StatusKind::kFinished:
    case StatusKind::kFailed:
    case StatusKind::kLeft:
    case StatusKind::kEnded:
      return true;
  }
  return false;
}

}  // namespace

Frame Encode(const StatusUpdate& update, int rank_size) {
  FrameHead head = {};
  head.magic = FrameHead::kMagic;
  head.kind = update.kind;
  head.rank = update.rank;
  head.code = update.code;
  head.text_bytes = static_cast<uint32_t>(std::min(update.text.size(), kReasonBytes - 1));
  head.has_agreement = update.agreement != nullptr ? 1 : 0;
  head.has_shared = update.shared != nullptr ? 1 : 0;
  head.step = update.step;
  head.digest = update.digest;
  head.balance = update.balance;
  Frame frame;
  Append(&head, sizeof(head), &frame);
  Append(update.text.data(), head.text_bytes, &frame);
  if (update.agreement != nullptr) Append(update.agreement, AgreementBytes(rank_size), &frame);
  if (update.shared != nullptr) Append(update.shared, static_cast<size_t>(kShareBytes), &frame);
  return frame;
}

bool Decode(const Frame& frame, int rank_size, StatusUpdate* update) {
  FrameHead head;
  if (frame.size() < sizeof(head)) return false;
  std::memcpy(&head, frame.data(), sizeof(head));
  if (head.magic != FrameHead::kMagic || !IsKnown(head.kind)) return false;
  if (head.rank < 0 || head.rank >= rank_size) return false;
  if (head.text_bytes >= kReasonBytes || head.has_agreement > 1 || head.has_shared > 1)
    return false;
  const size_t agreement_bytes = head.has_agreement * AgreementBytes(rank_size);
  const size_t shared_bytes = head.has_shared * static_cast<size_t>(kShareBytes);
  if (frame.size() != sizeof(head) + head.text_bytes + agreement_bytes + shared_bytes) return false;
  const std::byte* const text = frame.data() + sizeof(head);
  *update = StatusUpdate{head.kind, head.rank, head.step, head.digest, head.balance, head.code};
  update->text.resize(head.text_bytes);
  std::memcpy(update->text.data(), text, head.text_bytes);
  if (agreement_bytes > 0) update->agreement = text + head.text_bytes;
  if (shared_bytes > 0) update->shared = text + head.text_bytes + agreement_bytes;
  return true;
}

}  // namespace collops::control
