#include "collops/comm/backends/shm/pair_wire.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "collops/kernels/copy.h"

namespace collops::shm {
namespace {

constexpr int64_t kLines = sizeof(ReceiverLine) + sizeof(SenderLine);
// A body in its envelope is with the receiver after one trip, one in a ring after three (envelope,
// verdict, chunk), so few ranks have large slots. Limits for all pairs together, with large slots
// and with small ones; kLeastInlineBytes takes precedence.
constexpr int64_t kMostLargeBytes = 5 << 20;
constexpr int64_t kMostPairBytes = 16 << 20;
constexpr int64_t kLeastInlineBytes = 64;
constexpr int64_t kSmallInlineBytes = 4 << 10;
constexpr int64_t kMostInlineBytes = 256 << 10;

constexpr int64_t PairBytes(int64_t inline_bytes) {
  return kLines + kPairSlots * (int64_t{sizeof(EnvelopeSlot)} + inline_bytes);
}

}  // namespace

// The largest power of two that fits, plus 64 bytes: then the envelope fills whole lines of 128.
int64_t PairLayout::InlineBytes(int rank_size) {
  const int64_t pairs = int64_t{rank_size} * rank_size;
  for (int64_t power = kMostInlineBytes; power > kLeastInlineBytes; power /= 2) {
    const int64_t inline_bytes = power + kLeastInlineBytes;
    const int64_t most = power > kSmallInlineBytes ? kMostLargeBytes : kMostPairBytes;
    if (pairs * PairBytes(inline_bytes) <= most) return inline_bytes;
  }
  return kLeastInlineBytes;
}

control::SegmentShape PairLayout::Shape(int rank_size) {
  const int64_t of_sender = rank_size * PairBytes(InlineBytes(rank_size));
  const int64_t texts = kPairTexts * int64_t{sizeof(TextSlot)};
  return {rank_size * (of_sender + texts), {{0, of_sender}, {rank_size * of_sender, texts}}};
}

PairLayout::PairLayout(std::byte* base, int rank_size)
    : base_(base),
      rank_size_(rank_size),
      inline_bytes_(InlineBytes(rank_size)),
      pair_bytes_(PairBytes(inline_bytes_)) {}

std::byte* PairLayout::Pair(int sender, int receiver) const {
  return base_ + (int64_t{sender} * rank_size_ + receiver) * pair_bytes_;
}

ReceiverLine& PairLayout::receiver_line(int sender, int receiver) const {
  return *reinterpret_cast<ReceiverLine*>(Pair(sender, receiver));
}

SenderLine& PairLayout::sender_line(int sender, int receiver) const {
  return *reinterpret_cast<SenderLine*>(Pair(sender, receiver) + sizeof(ReceiverLine));
}

EnvelopeSlot& PairLayout::envelope(int sender, int receiver, uint64_t number) const {
  const int64_t slot = static_cast<int64_t>(number % kPairSlots);
  const int64_t slot_bytes = int64_t{sizeof(EnvelopeSlot)} + inline_bytes_;
  return *reinterpret_cast<EnvelopeSlot*>(Pair(sender, receiver) + kLines + slot * slot_bytes);
}

TextSlot& PairLayout::text(int rank, uint64_t stamp) const {
  std::byte* const texts = base_ + int64_t{rank_size_} * rank_size_ * pair_bytes_;
  return reinterpret_cast<TextSlot*>(
      texts)[int64_t{rank} * kPairTexts + static_cast<int64_t>(stamp % kPairTexts)];
}

void PairLayout::WriteText(int rank, uint64_t stamp, const std::string& words) const {
  uint64_t copy[kPairTextWords] = {};
  std::memcpy(copy, words.data(), std::min(words.size(), sizeof(copy) - 1));
  text(rank, stamp).Write(stamp, copy);
}

std::string PairLayout::ReadText(int rank, uint64_t stamp) const {
  uint64_t copy[kPairTextWords] = {};
  if (!text(rank, stamp).Read(stamp, copy)) return "";
  const auto* const words = reinterpret_cast<const char*>(copy);
  return std::string(words, strnlen(words, sizeof(copy) - 1));
}

namespace {

enum Form : int16_t { kInline = 0, kWindow = 1, kRing = 2, kRefusal = 3, kPieces = 4 };

// Whether the body is in the envelope's slot.
bool IsInSlot(int16_t form) {
  return form == kInline || form == kPieces;
}

// A body in pieces lies behind its place, which says how many pieces were written before it.
constexpr int64_t kPiecesBegin = 64;
static_assert(sizeof(BodyPlace) <= kPiecesBegin);
// A shorter body is with the receiver at once when it is published as a whole.
constexpr int64_t kLeastInPieces = 16 << 10;

// A longer body is read in its window, if it is in one, although it may fit into the envelope.
constexpr int64_t kMostCopiedWindow = (4 << 10) + 64;

// Bytes of a window that are copied before the lane looks after its other messages.
constexpr int64_t kPieceBytes = 4 << 20;

// The size of a ring's chunks and of pieces, except a message's last; equal on both sides. A
// message of middling size is cut into eight, so that one side reads while the other still writes;
// a short one into fewer, because a part's first lines take longer than the others.
int64_t ChunkBytes(int64_t bytes) {
  const int64_t part = std::max((bytes + 7) / 8, std::min(bytes / 4, 4 * kLeastPairChunkBytes));
  const int64_t pages = (part + kLeastPairChunkBytes - 1) / kLeastPairChunkBytes;
  return std::min(std::max<int64_t>(pages, 1) * kLeastPairChunkBytes, kPairChunkBytes);
}

int64_t RingOffset(uint64_t chunk) {
  return static_cast<int64_t>(chunk % kPairChunks) * kPairChunkBytes;
}

}  // namespace

ShmPairWire::ShmPairWire(std::byte* base, control::Endpoint* endpoint, Doorbell doorbell,
                         WindowMailbox* mailbox)
    : layout_(base, endpoint->size()),
      endpoint_(endpoint),
      rank_(endpoint->rank()),
      doorbell_(doorbell),
      mailbox_(mailbox),
      peers_(static_cast<size_t>(endpoint->size())) {}

WireStep ShmPairWire::Broken(int rank, const std::string& what) {
  fault_ = Error(ERROR_PEER_LOST, "Send and Recv: rank ", rank, " wrote invalid data: ", what);
  return WireStep::kBroken;
}

WireStep ShmPairWire::PostEnvelope(int rank, const Envelope& envelope, const void* data,
                                   int64_t bytes) {
  PeerState& to = peer(rank);
  const ReceiverLine& theirs = layout_.receiver_line(rank_, rank);
  if (!HasRoom(to.posted, kPairSlots, theirs.envelopes_read, &to.free_up_to)) {
    if (to.free_up_to <= to.posted) return WireStep::kNone;
    return Broken(rank, Concat(to.free_up_to, " envelopes read of ", to.posted));
  }
  EnvelopeSlot& slot = layout_.envelope(rank_, rank, envelope.number);
  BodyPlace place;
  int16_t form = kInline;
  if (envelope.refusal) {
    layout_.WriteText(rank_, ++texts_, envelope.reason);
    form = kRefusal;
    place.offset = static_cast<int64_t>(texts_);
  } else if (bytes > std::min(layout_.inline_bytes(), kMostCopiedWindow)) {
    const WireStep step = Place(data, bytes, &form, &place);
    if (step != WireStep::kDone) return step;
  }
  if (form == kInline && bytes >= kLeastInPieces &&
      bytes <= layout_.inline_bytes() - kPiecesBegin) {
    form = kPieces;
    place.offset = static_cast<int64_t>(to.pieces_written);
  }
  if (form == kInline) {
    peer_copy_.Copy(PairLayout::Inline(&slot), data, bytes);
  } else {
    std::memcpy(PairLayout::Inline(&slot), &place, sizeof(place));
  }
  slot.verdicts_read = to.verdicts_read;
  slot.head = envelope.head;
  slot.head.form = form;
  to.posted = envelope.number;
  Publish(&slot.number, envelope.number);
  doorbell_.Ring(rank);
  if (form == kPieces) WritePieces(rank, &slot, data, bytes);
  return WireStep::kDone;
}

void ShmPairWire::WritePieces(int rank, EnvelopeSlot* slot, const void* data, int64_t bytes) {
  std::byte* const body = PairLayout::Inline(slot) + kPiecesBegin;
  std::atomic<uint64_t>& written = layout_.sender_line(rank_, rank).pieces_written;
  const int64_t piece = ChunkBytes(bytes);
  for (int64_t begin = 0; begin < bytes; begin += piece) {
    peer_copy_.Copy(body + begin, static_cast<const std::byte*>(data) + begin,
                    std::min(piece, bytes - begin));
    Publish(&written, ++peer(rank).pieces_written);
    doorbell_.Ring(rank);
  }
}

// Where a body lies that is too long for its envelope, or long enough to be read in a window.
WireStep ShmPairWire::Place(const void* data, int64_t bytes, int16_t* form, BodyPlace* place) {
  *form = bytes > layout_.inline_bytes() ? kRing : kInline;
  WindowSpot spot;
  if (!mailbox_->table().Find(data, bytes, &spot)) return WireStep::kDone;
  *form = kWindow;
  place->window = spot.id;
  place->offset = spot.offset;
  return Announce(spot.id, &place->mails);
}

// If the window was announced before, its mail is an earlier one, which peers read first.
WireStep ShmPairWire::Announce(uint32_t id, uint64_t* mails) {
  bool sent = false;
  fault_ = mailbox_->TrySend(id, &sent);
  *mails = mailbox_->sent();
  if (!fault_.ok()) return WireStep::kBroken;
  return sent ? WireStep::kDone : WireStep::kNone;
}

Status ShmPairWire::Locate(int rank, const WindowSpot& spot, int64_t bytes, uint64_t mails,
                           const std::byte** data) {
  *data = nullptr;
  const bool own = rank == rank_;
  if (!own && mailbox_->received(rank) < mails) mailbox_->Drain();
  if (!own && mailbox_->received(rank) < mails) return Ok();
  if (own) {
    *data = mailbox_->table().Address(spot, bytes);
  } else {
    located_ = mailbox_->Find(rank, spot.id);
    *data = WindowMailbox::Range(located_, spot.offset, bytes);
  }
  if (*data != nullptr) return Ok();
  if (!own) COLLOPS_RETURN_IF_ERROR(mailbox_->WhyNotMapped(rank, spot.id));
  return Error(ERROR_PEER_LOST, "Send and Recv: ", endpoint_->Who(rank), " announced ", bytes,
               " bytes in window ", spot.id, " at ", spot.offset, ", which it has not shared");
}

WireStep ShmPairWire::NextVerdict(int rank, Verdict* verdict) {
  PeerState& to = peer(rank);
  const uint64_t next = to.verdicts_read + 1;
  const VerdictSlot& slot = layout_.receiver_line(rank_, rank).verdicts[next % kPairSlots];
  const uint64_t stamp = Look(slot.stamp);
  if (stamp >> 2 != next) {
    if (stamp >> 2 == Before(next, kPairSlots)) return WireStep::kNone;
    return Broken(rank, Concat("verdict ", stamp >> 2, " in place of ", next));
  }
  verdict->number = slot.number;
  verdict->kind = static_cast<Verdict::Kind>(stamp & 3);
  const uint64_t text = slot.text;
  verdict->text.clear();
  if (text != 0) verdict->text = layout_.ReadText(rank, text);
  to.verdicts_read = next;
  Publish(&layout_.sender_line(rank_, rank).verdicts_read, next);
  return WireStep::kDone;
}

// The ring of this pair, allocated and announced at its first use.
WireStep ShmPairWire::MakeRing(int rank, PeerState* to) {
  if (to->ring == nullptr) {
    fault_ = mailbox_->table().Allocate(kPairRingBytes, &to->ring);
    if (!fault_.ok()) return WireStep::kBroken;
    WindowSpot spot;  // found: it has just been made
    static_cast<void>(mailbox_->table().Find(to->ring->data(), kPairRingBytes, &spot));
    to->ring_id = spot.id;
  }
  uint64_t mails = 0;
  const WireStep announced = Announce(to->ring_id, &mails);
  if (announced == WireStep::kBroken) return announced;
  SenderLine& line = layout_.sender_line(rank_, rank);
  WritePlace(&line.ring_mails, mails);
  WritePlace(&line.ring_window, to->ring_id);
  to->ring_announced = announced == WireStep::kDone;
  return announced;
}

WireStep ShmPairWire::SendBody(int rank, const void* data, int64_t bytes, int64_t* sent) {
  PeerState& to = peer(rank);
  if (!to.ring_announced) {
    const WireStep step = MakeRing(rank, &to);
    if (step != WireStep::kDone) return step;
  }
  const ReceiverLine& theirs = layout_.receiver_line(rank_, rank);
  const int64_t chunk_bytes = ChunkBytes(bytes);
  auto* const ring = static_cast<std::byte*>(to.ring->data());
  const uint64_t before = to.chunks_written;
  for (int i = 0; i < kPairChunks && *sent < bytes; ++i) {
    const uint64_t unread = UnreadForSender(to.chunks_written, theirs.chunks_read);
    if (unread > kPairChunks) return Broken(rank, Concat(unread, " chunks unread of a ring"));
    if (unread == kPairChunks) break;
    const int64_t chunk = std::min(chunk_bytes, bytes - *sent);
    peer_copy_.Copy(ring + RingOffset(to.chunks_written),
                    static_cast<const std::byte*>(data) + *sent, chunk);
    *sent += chunk;
    Publish(&layout_.sender_line(rank_, rank).chunks_written, ++to.chunks_written);
    doorbell_.Ring(rank);
  }
  return to.chunks_written == before ? WireStep::kNone : WireStep::kDone;
}

WireStep ShmPairWire::NextEnvelope(int rank, Envelope* envelope) {
  PeerState& from = peer(rank);
  const uint64_t next = from.slots.read + 1;
  EnvelopeSlot& slot = layout_.envelope(rank, rank_, next);
  const uint64_t number = Look(slot.number);
  if (number != next) {
    if (number == Before(next, kPairSlots)) return WireStep::kNone;
    return Broken(rank, Concat("envelope ", number, " in place of ", next));
  }
  const uint64_t verdicts_seen = slot.verdicts_read;
  envelope->number = next;
  envelope->head = slot.head;
  envelope->place = {};
  const int16_t form = envelope->head.form;
  if (form != kInline) std::memcpy(&envelope->place, PairLayout::Inline(&slot), sizeof(BodyPlace));
  envelope->refusal = form == kRefusal;
  if (envelope->refusal) {
    envelope->reason = layout_.ReadText(rank, static_cast<uint64_t>(envelope->place.offset));
  }
  if (!NoteVerdictsSeen(rank, &from, verdicts_seen)) return WireStep::kBroken;
  const bool freed =
      from.slots.CountRead(IsInSlot(form), &layout_.receiver_line(rank, rank_).envelopes_read);
  if (freed) doorbell_.Ring(rank);
  return WireStep::kDone;
}

BodyStep ShmPairWire::TakeBody(int rank, const Envelope& envelope, void* data, int64_t bytes,
                               int64_t* taken) {
  PeerState& from = peer(rank);
  switch (envelope.head.form) {
    case kInline:
      if (bytes > layout_.inline_bytes()) break;
      if (!from.slots.Holds(envelope.number)) return BodyStep::kAsk;
      kernels::Copy(data, PairLayout::Inline(&layout_.envelope(rank, rank_, envelope.number)),
                    bytes);
      from.slots.Release(envelope.number, &layout_.receiver_line(rank, rank_).envelopes_read);
      return BodyStep::kTaken;
    case kPieces:
      if (bytes > layout_.inline_bytes() - kPiecesBegin) break;
      return TakePieces(rank, envelope, data, bytes, taken);
    case kWindow:
      return TakeWindow(rank, envelope.place, data, bytes, taken);
    case kRing:
      return BodyStep::kAsk;
    default:
      break;
  }
  Broken(rank, Concat("a body of ", bytes, " bytes in form ", envelope.head.form));
  return BodyStep::kBroken;
}

BodyStep ShmPairWire::TakePieces(int rank, const Envelope& envelope, void* data, int64_t bytes,
                                 int64_t* taken) {
  PeerState& from = peer(rank);
  if (!from.slots.Holds(envelope.number)) {
    *taken = 0;
    return BodyStep::kAsk;
  }
  const uint64_t ready = UnreadForReceiver(layout_.sender_line(rank, rank_).pieces_written,
                                           static_cast<uint64_t>(envelope.place.offset));
  const int64_t piece = ChunkBytes(bytes);
  const auto pieces = static_cast<uint64_t>((bytes + piece - 1) / piece);
  const int64_t end = std::min(bytes, static_cast<int64_t>(std::min(ready, pieces)) * piece);
  const std::byte* const body =
      PairLayout::Inline(&layout_.envelope(rank, rank_, envelope.number)) + kPiecesBegin;
  // At once, because the first lines of a copy take longer than the others.
  kernels::Copy(static_cast<std::byte*>(data) + *taken, body + *taken, end - *taken);
  *taken = std::max(*taken, end);
  if (*taken < bytes) return BodyStep::kPart;
  from.slots.Release(envelope.number, &layout_.receiver_line(rank, rank_).envelopes_read);
  return BodyStep::kTaken;
}

BodyStep ShmPairWire::TakeWindow(int rank, const BodyPlace& place, void* data, int64_t bytes,
                                 int64_t* taken) {
  if (place.offset < 0 || place.offset > std::numeric_limits<int64_t>::max() - bytes) {
    Broken(rank, Concat("offset ", place.offset, " in window ", place.window));
    return BodyStep::kBroken;
  }
  const int64_t piece = std::min(kPieceBytes, bytes - *taken);
  const std::byte* source = nullptr;
  fault_ = Locate(rank, {place.window, place.offset + *taken}, piece, place.mails, &source);
  if (!fault_.ok()) return BodyStep::kBroken;
  if (source == nullptr) return BodyStep::kPart;
  kernels::Copy(static_cast<std::byte*>(data) + *taken, source, piece, bytes);
  *taken += piece;
  return *taken == bytes ? BodyStep::kTaken : BodyStep::kPart;
}

void ShmPairWire::DropBody(int rank, const Envelope& envelope) {
  PeerState& from = peer(rank);
  if (IsInSlot(envelope.head.form) && envelope.number > from.slots.released) {
    from.slots.Release(envelope.number, &layout_.receiver_line(rank, rank_).envelopes_read);
  }
}

bool ShmPairWire::NoteVerdictsSeen(int rank, PeerState* from, uint64_t count) {
  if (count > from->verdicts) {
    Broken(rank, Concat(count, " verdicts read of ", from->verdicts));
    return false;
  }
  from->verdicts_seen = std::max(from->verdicts_seen, count);
  return true;
}

WireStep ShmPairWire::PostVerdict(int rank, const Verdict& verdict) {
  PeerState& from = peer(rank);
  const SenderLine& theirs = layout_.sender_line(rank, rank_);
  if (!HasRoom(from.verdicts, kPairSlots, theirs.verdicts_read, &from.verdicts_seen)) {
    if (from.verdicts_seen <= from.verdicts) return WireStep::kNone;
    return Broken(rank, Concat(from.verdicts_seen, " verdicts read of ", from.verdicts));
  }
  const uint64_t count = ++from.verdicts;
  VerdictSlot& slot = layout_.receiver_line(rank, rank_).verdicts[count % kPairSlots];
  slot.number = verdict.number;
  slot.text = 0;
  if (!verdict.text.empty()) {
    layout_.WriteText(rank_, ++texts_, verdict.text);
    slot.text = texts_;
  }
  Publish(&slot.stamp, count << 2 | verdict.kind);
  doorbell_.Ring(rank);
  return WireStep::kDone;
}

WireStep ShmPairWire::RecvBody(int rank, void* data, int64_t bytes, int64_t* received) {
  PeerState& from = peer(rank);
  const SenderLine& theirs = layout_.sender_line(rank, rank_);
  const int64_t chunk_bytes = ChunkBytes(bytes);
  const uint64_t unread = UnreadForReceiver(theirs.chunks_written, from.chunks_read);
  if (unread > kPairChunks) return Broken(rank, Concat(unread, " chunks unread of a ring"));
  if (unread == 0) return WireStep::kNone;
  const std::byte* ring = nullptr;
  fault_ = Locate(rank, {ReadPlace(theirs.ring_window), 0}, kPairRingBytes,
                  ReadPlace(theirs.ring_mails), &ring);
  if (!fault_.ok()) return WireStep::kBroken;
  if (ring == nullptr) return WireStep::kNone;
  for (uint64_t i = 0; i < unread && *received < bytes; ++i) {
    const int64_t chunk = std::min(chunk_bytes, bytes - *received);
    kernels::Copy(static_cast<std::byte*>(data) + *received, ring + RingOffset(from.chunks_read),
                  chunk, bytes);
    *received += chunk;
    Publish(&layout_.receiver_line(rank, rank_).chunks_read, ++from.chunks_read);
    doorbell_.Ring(rank);
  }
  return WireStep::kDone;
}

}  // namespace collops::shm
