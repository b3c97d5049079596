#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "collops/comm/agreement.h"
#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/core/status.h"

namespace collops::control {

// Writes the fields of a frame: numbers in the byte order of the network, texts with their length
// before them.
class FieldWriter {
 public:
  FieldWriter& Number(uint64_t number) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      text_.push_back(static_cast<char>(number >> shift & 0xff));
    }
    return *this;
  }
  FieldWriter& Text(const std::string& text) {
    Number(text.size());
    text_ += text;
    return *this;
  }

  // Bytes that are known to be so many; null: none.
  FieldWriter& Bytes(const std::byte* bytes, size_t count) {
    Number(bytes == nullptr ? 0 : 1);
    if (bytes != nullptr) text_.append(reinterpret_cast<const char*>(bytes), count);
    return *this;
  }

  const std::string& text() const { return text_; }
  Frame frame() const {
    const auto* const begin = reinterpret_cast<const std::byte*>(text_.data());
    return Frame(begin, begin + text_.size());
  }

 private:
  std::string text_;
};

// Reads them back. After a field that is not there, or too long, all further fields are empty.
class FieldReader {
 public:
  // `frame` must outlive this object.
  explicit FieldReader(const Frame& frame) : frame_(frame) {}
  explicit FieldReader(Frame&& frame) = delete;

  uint64_t Number() {
    constexpr size_t kBytes = 8;
    if (frame_.size() - at_ < kBytes) return Fail();
    uint64_t number = 0;
    for (size_t i = 0; i < kBytes; ++i) {
      number = number << 8 | std::to_integer<uint64_t>(frame_[at_++]);
    }
    return number;
  }
  // A number of that range; else the frame is not valid.
  int Int(int least, int most) {
    const auto number = static_cast<int64_t>(Number());
    return number < least || number > most ? static_cast<int>(Fail()) : static_cast<int>(number);
  }
  std::string Text(size_t most) {
    const uint64_t bytes = Number();
    // An empty frame has no address to read from, not even nothing.
    if (!valid_ || bytes > most || bytes > frame_.size() - at_) {
      Fail();
      return "";
    }
    std::string text(static_cast<size_t>(bytes), '\0');
    std::memcpy(text.data(), frame_.data() + at_, text.size());
    at_ += text.size();
    return text;
  }

  // Into the frame; null: there are none.
  const std::byte* Bytes(size_t count) {
    if (Int(0, 1) == 0) return nullptr;
    if (count > frame_.size() - at_) Fail();
    if (!valid_) return nullptr;
    at_ += count;
    return frame_.data() + at_ - count;
  }

  // Whether all fields were there, and nothing follows.
  bool Done() const { return valid_ && at_ == frame_.size(); }
  bool valid() const { return valid_; }

 private:
  uint64_t Fail() {
    valid_ = false;
    at_ = frame_.size();
    return 0;
  }

  const Frame& frame_;
  size_t at_ = 0;
  bool valid_ = true;
};

// What every rank says of itself at first contact.
struct Row {
  static constexpr size_t kMostHostBytes = 256;
  static constexpr size_t kMostAddressBytes = 128;

  int rank = 0;
  pid_t pid = 0;
  std::string host;     // HostIdentity()
  std::string address;  // where its process accepts connections of other hosts, and the port
  int port = 0;

  // "rank 3 (pid 77 on 10.0.0.2)"
  std::string Who() const { return Concat("rank ", rank, " (pid ", pid, " on ", address, ")"); }

  void Write(FieldWriter* fields) const;
  static Row Read(FieldReader* fields);
};

// The host of each rank, numbered in the order of their first ranks.
std::vector<int> HostsOf(const std::vector<Row>& rows);

// What is sent at first contact: between rank 0 and the rank that speaks for a host, once both ends
// have proven themselves, and between that one and the others of its host; and on one host, between
// rank 0 and the others.
enum class MessageKind {
  kNone = 0,           // never sent: not a message of collops
  kRow = 1,            // to rank 0: one rank
  kRows = 2,           // from rank 0: some of the rows of all
  kProgress = 3,       // from rank 0: which ranks are missing
  kWelcome = 4,        // from rank 0: all was sent; on a host, with the segment
  kVerdict = 5,        // either way: first contact ends, and why
  kDone = 6,           // to rank 0: which rank is well; from rank 0: all are; at an entrance too
  kLeft = 7,           // to rank 0: a rank that the sender speaks for has left, and why
  kEnded = 8,          // to rank 0: the process of such a rank has ended
  kRelay = 9,          // within a host: who speaks, and at which address the host is reached
  kWaits = 10,         // within a host: what the relay waits for, and why
  kHello = 11,         // on a host, to rank 0: who it is, with its mailbox and pidfd
  kPeer = 12,          // on a host, from rank 0: one rank, with its mailbox and pidfd
  kOtherVersion = 13,  // never sent: a message of another version
  kJoin = 14,          // at an entrance, to rank 0: a new process
  kInvitation = 15     // at an entrance, from rank 0: who it becomes
};

// The rows of all ranks, in frames of kRows; false if the fields after the kind are not of one.
std::vector<Frame> RowFrames(const std::vector<Row>& rows);
bool ReadRows(FieldReader* fields, std::vector<Row>* rows);

FieldWriter MessageOf(MessageKind kind);
// A message of one rank.
FieldWriter MessageOf(MessageKind kind, int rank);
Frame VerdictFrame(const Status& reason);
// After the kind of a verdict; never Ok.
Status ReadVerdict(FieldReader* fields);

// A status; of Ok, the text is not read.
void WriteReason(const Status& reason, FieldWriter* fields);
Status ReadReason(FieldReader* fields);

// On one host nobody proves anything, and a message begins with what tells versions apart: the
// first four bytes are the same in all of them. It changes with the layout of the board;
// what a backend adds to the segment changes its size.
constexpr uint64_t kLocalMagic = 0x6c6c6f63;
constexpr uint64_t kLocalVersion =
    kLocalMagic << 32 |
    (9 + (uint64_t{Agreement::kMaxWords} << 16) + (sizeof(Member) << 4) + uint64_t{kShareBytes});
constexpr size_t kMostLocalFrameBytes = 2048;
FieldWriter LocalMessageOf(MessageKind kind);
// `rank_size`: only groups of this size are concerned; 0: groups of any size.
Frame LocalVerdictFrame(const Status& reason, int rank_size = 0);
// Reads the beginning. Of kOtherVersion nothing else is valid.
MessageKind ReadLocalKind(FieldReader* fields);
// False if it is no verdict. `reason` is never Ok.
bool ReadLocalVerdict(const Frame& frame, Status* reason, int* rank_size = nullptr);
// The verdict that a rank left in its mailbox when it failed during first contact, after its peers
// had got that mailbox; Ok if there is none. It stays there for the other peers.
Status VerdictInMailbox(int mailbox);

}  // namespace collops::control
