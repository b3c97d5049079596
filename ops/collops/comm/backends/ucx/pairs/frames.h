#pragma once

#include <cstddef>
#include <cstdint>

namespace collops::ucx {

// What two ranks of different hosts send each other of their messages.

// Bodies up to this size travel in their envelope.
constexpr int64_t kMostInlineBytes = 8192;
constexpr size_t kMostTextBytes = 1024;

enum class Form : int32_t { kInline = 0, kAsked = 1, kRefusal = 2 };

// Followed by the body, or by the reason of a refusal.
struct EnvelopeFrame {
  uint64_t number;
  uint64_t digest;
  int64_t elements;
  int32_t tag;
  int32_t dtype;
  Form form;
  uint32_t payload_bytes;
  char type[24];
};
static_assert(sizeof(EnvelopeFrame) == 64);
static_assert(kMostTextBytes <= static_cast<size_t>(kMostInlineBytes));

// A Verdict::Kind, or kCredit: only `read` counts.
constexpr uint32_t kCredit = 4;

// Sent up to the end of its text.
struct ReplyFrame {
  uint64_t number;
  uint64_t read;  // envelopes that the receiver has read
  uint32_t kind;
  uint32_t text_bytes;
  char text[kMostTextBytes];
};
constexpr size_t kReplyHeadBytes = sizeof(ReplyFrame) - kMostTextBytes;

// Streams of a pair, as in Tag. A body's sequence is its message's number, the others' is 0.
constexpr int kBodyStream = 0;
constexpr int kEnvelopeStream = 1;
constexpr int kReplyStream = 2;

}  // namespace collops::ucx
