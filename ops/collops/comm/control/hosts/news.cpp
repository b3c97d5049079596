#include "collops/comm/control/hosts/news.h"

#include <algorithm>
#include <cstring>

namespace collops::control {
namespace {

// A frame: FrameHead, then the text, the agreement and the shared bytes.
struct FrameHead {
  // Changes with the contents of a board, so that hosts with different versions refuse each other.
  static constexpr uint32_t kMagic = 0x6e657733 + (Agreement::kMaxWords << 16) + kShareBytes;

  uint32_t magic;
  NewsKind kind;
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

bool IsKnown(NewsKind kind) {
  switch (kind) {
    case NewsKind::kBeat:
    case NewsKind::kHead:
    case NewsKind::kFinished:
    case NewsKind::kFailed:
    case NewsKind::kLeft:
    case NewsKind::kEnded:
      return true;
  }
  return false;
}

}  // namespace

Frame Encode(const News& news, int rank_size) {
  FrameHead head = {};
  head.magic = FrameHead::kMagic;
  head.kind = news.kind;
  head.rank = news.rank;
  head.code = news.code;
  head.text_bytes = static_cast<uint32_t>(std::min(news.text.size(), kReasonBytes - 1));
  head.has_agreement = news.agreement != nullptr ? 1 : 0;
  head.has_shared = news.shared != nullptr ? 1 : 0;
  head.step = news.step;
  head.digest = news.digest;
  head.balance = news.balance;
  Frame frame;
  Append(&head, sizeof(head), &frame);
  Append(news.text.data(), head.text_bytes, &frame);
  if (news.agreement != nullptr) Append(news.agreement, AgreementBytes(rank_size), &frame);
  if (news.shared != nullptr) Append(news.shared, static_cast<size_t>(kShareBytes), &frame);
  return frame;
}

bool Decode(const Frame& frame, int rank_size, News* news) {
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
  *news = News{head.kind, head.rank, head.step, head.digest, head.balance, head.code};
  news->text.resize(head.text_bytes);
  std::memcpy(news->text.data(), text, head.text_bytes);
  if (agreement_bytes > 0) news->agreement = text + head.text_bytes;
  if (shared_bytes > 0) news->shared = text + head.text_bytes + agreement_bytes;
  return true;
}

}  // namespace collops::control
