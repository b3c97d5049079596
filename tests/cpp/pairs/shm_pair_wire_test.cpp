// Messages through shared memory: envelopes, rings and windows; and peers that write invalid data.
#include <sys/resource.h>

#include <deque>
#include <string>
#include <vector>

#include "collops/comm/backends/shm/pair_wire.h"
#include "pairs/pair_kit.h"

namespace {

using collops::ERROR_OUT_OF_HOST_MEMORY;
using collops::ERROR_PEER_LOST;
using collops::control::UniqueFd;
using collops::shm::kPairRingBytes;
using collops::shm::PairLayout;
using collops::shm::ShmPairWire;
using pairs::Buffer;
using pairs::Error;
using pairs::Host;
using pairs::PairLane;
using pairs::Pattern;
using pairs::Recv;
using pairs::Send;
using pairs::Status;
using pairs::TransferHandle;

// The slots of so many ranks hold 4160 bytes: 9000 bytes go through a ring, or are read in a
// window.
constexpr int kRanksOfSmallSlots = 13;

// Sizes around those of an envelope, a chunk and a ring.
constexpr int64_t kSizes[] = {0,
                              1,
                              64,
                              65,
                              4161,
                              16383,
                              16384,
                              33001,
                              262144,
                              262145,
                              262208,
                              262209,
                              kPairRingBytes + 1,
                              300007,
                              1048577,
                              2 * kPairRingBytes + 7};

using Posted = collops::control::SocketResult;
const auto& Post = collops::control::Send;
const auto& Take = collops::control::Receive;

void Finish(Host* host, int sender, TransferHandle sent, int receiver, TransferHandle received) {
  EXPECT_TRUE(host->Settle());
  ASSERT_TRUE((*host)[sender].Done(sent));
  ASSERT_TRUE((*host)[receiver].Done(received));
  EXPECT_EQ((*host)[sender].Collect(sent).message(), "");
  EXPECT_EQ((*host)[receiver].Collect(received).message(), "");
}

// A small group has large slots in at most 5 MiB, besides the texts of refusals.
TEST(MemoryGrowsWithThePairsUpToSixteenMiB) {
  EXPECT_EQ(PairLayout::InlineBytes(2), (256 << 10) + 64);
  EXPECT_EQ(PairLayout::InlineBytes(4), (64 << 10) + 64);
  EXPECT_EQ(PairLayout::InlineBytes(16), (4 << 10) + 64);
  EXPECT_EQ(PairLayout::InlineBytes(24), (4 << 10) + 64);
  EXPECT_EQ(PairLayout::InlineBytes(kRanksOfSmallSlots), (4 << 10) + 64);
  EXPECT_EQ(PairLayout::InlineBytes(128), 64);
  for (int size = 2; size <= 128; ++size) {
    EXPECT_EQ((64 + PairLayout::InlineBytes(size)) % 128, 0);
    EXPECT_TRUE(ShmPairWire::Bytes(size) <= int64_t{size <= 12 ? 6 : 17} << 20);
    EXPECT_TRUE(PairLayout::InlineBytes(size) >= 64);
  }
}

TEST(EverySizeArrivesFromEnvelopeRingAndWindow) {
  for (const int size : {2, 128}) {
    Host host(2, size);
    for (const bool window : {false, true}) {
      for (const int64_t bytes : kSizes) {
        for (const bool send_first : {true, false}) {
          const auto seed = static_cast<uint32_t>(bytes + (window ? 1 : 0));
          Host fresh(2, size);
          Host& at = window ? fresh : host;
          Buffer x = window ? Buffer(at.NewWindow(0, bytes), Pattern(bytes, seed))
                            : Buffer(Pattern(bytes, seed));
          Buffer out(bytes);
          TransferHandle sent, received;
          if (send_first) sent = at[0].Post(Send(1, 3, &x));
          EXPECT_TRUE(at.Settle());
          received = at[1].Post(Recv(0, 3, &out));
          EXPECT_TRUE(at.Settle());
          if (!send_first) sent = at[0].Post(Send(1, 3, &x));
          Finish(&at, 0, sent, 1, received);
          EXPECT_TRUE(out.Holds(Pattern(bytes, seed)));
          if (window) EXPECT_TRUE(at.NumAnnounced(0) <= 1);  // the window, and no ring
        }
      }
    }
    EXPECT_EQ(host.NumAnnounced(0), 1);
    EXPECT_EQ(host.NumAnnounced(1), 0);
    EXPECT_TRUE(host.rings_of_bell > 0);
  }
}

// A message that its sender is writing: the first of its pieces is there.
struct HalfWritten {
  Host host{2};
  Buffer x{Pattern(100000, 5)};
  Buffer out{100000};
  std::atomic<uint64_t>& written = PairLayout(host.base(), 2).sender_line(0, 1).pieces_written;
  TransferHandle sent = host[0].Post(Send(1, 0, &x));
  const uint64_t all = written.exchange(1);
  TransferHandle received = host[1].Post(Recv(0, 0, &out));

  // The first bytes have been taken, and the last ones not.
  bool IsHalfTaken() {
    const std::vector<std::byte> want = Pattern(100000, 5);
    constexpr ptrdiff_t kSome = 4096;
    return std::equal(want.begin(), want.begin() + kSome, out.data()) &&
           std::all_of(out.data() + out.bytes() - kSome, out.data() + out.bytes(),
                       [](std::byte byte) { return byte == std::byte{0xa5}; });
  }
};

TEST(ABodyIsTakenWhileItIsWritten) {
  HalfWritten message;
  EXPECT_TRUE(message.all > 2);
  message.host[1].Poll();
  EXPECT_FALSE(message.host[1].Done(message.received));
  EXPECT_TRUE(message.IsHalfTaken());
  message.written.store(message.all);
  Finish(&message.host, 0, message.sent, 1, message.received);
  EXPECT_TRUE(message.out.Holds(Pattern(100000, 5)));
}

TEST(TheSenderOfABodyThatIsHalfTakenIsLost) {
  HalfWritten message;
  message.host[1].Poll();
  message.host[1].Lose(0, PairLane::Departure::kEnded, Error(ERROR_PEER_LOST, "rank 0 has ended"));
  EXPECT_TRUE(pairs::Settle({message.host.lanes[1].get()}));
  ASSERT_TRUE(message.host[1].Done(message.received));
  EXPECT_EQ(message.host[1].Collect(message.received).code(), ERROR_PEER_LOST);
  EXPECT_TRUE(message.IsHalfTaken());
}

TEST(TheSenderLeavesWhenTheWholeBodyIsWritten) {
  HalfWritten message;
  message.host[1].Poll();
  message.written.store(message.all);
  message.host[1].Lose(0, PairLane::Departure::kLeft, Error(ERROR_PEER_LOST, "rank 0 has left"));
  EXPECT_TRUE(pairs::Settle({message.host.lanes[1].get()}));
  ASSERT_TRUE(message.host[1].Done(message.received));
  EXPECT_EQ(message.host[1].Collect(message.received).message(), "");
  EXPECT_TRUE(message.out.Holds(Pattern(100000, 5)));
}

TEST(NothingIsTakenOnceTheLaneHasEnded) {
  HalfWritten message;
  message.host[1].Poll();
  message.host[1].End(Error(ERROR_PEER_LOST, "it closed its communicator"));
  message.written.store(message.all);
  message.host[1].Poll();
  EXPECT_TRUE(message.IsHalfTaken());
}

// The body comes again, through the ring.
TEST(ALaterEnvelopeNeedsTheSlotOfABodyThatIsHalfTaken) {
  HalfWritten message;
  Host& host = message.host;
  std::deque<Buffer> x, out;
  std::vector<TransferHandle> sent, received;
  for (int32_t tag = 1; tag <= 4; ++tag) {
    x.emplace_back(Pattern(100, static_cast<uint32_t>(tag)));
    out.emplace_back(100);
    sent.push_back(host[0].Post(Send(1, tag, &x.back())));
  }
  host[1].Poll();
  EXPECT_TRUE(message.IsHalfTaken());
  received.push_back(host[1].Post(Recv(0, 4, &out[3])));  // reads the envelopes before it
  EXPECT_TRUE(host.Settle());
  message.written.store(message.all);
  Finish(&host, 0, message.sent, 1, message.received);
  EXPECT_TRUE(message.out.Holds(Pattern(100000, 5)));
  EXPECT_EQ(host.NumAnnounced(0), 1);  // the ring
  for (int32_t tag = 1; tag <= 3; ++tag) {
    received.push_back(host[1].Post(Recv(0, tag, &out[static_cast<size_t>(tag) - 1])));
  }
  EXPECT_TRUE(host.Settle());
  for (const TransferHandle& each : received) EXPECT_TRUE(host[1].Collect(each).ok());
  for (uint32_t tag = 1; tag <= 4; ++tag) EXPECT_TRUE(out[tag - 1].Holds(Pattern(100, tag)));
}

TEST(AFullSetOfEnvelopesStopsOnlyItsSender) {
  Host host(3);
  std::deque<Buffer> x, out;
  for (uint32_t i = 0; i < 40; ++i) {
    x.emplace_back(Pattern(i % 5 == 4 ? 150000 : 48, i));
    host[0].Post(Send(1, static_cast<int32_t>(i), &x.back()));
  }
  // Rank 1 does not poll; ranks 0 and 2 exchange small and long messages.
  for (uint32_t i = 0; i < 50; ++i) {
    const int64_t bytes = i % 2 == 0 ? 100 : 700000;
    Buffer there(Pattern(bytes, i)), back(bytes);
    const TransferHandle sent = host[0].Post(Send(2, 0, &there));
    const TransferHandle received = host[2].Post(Recv(0, 0, &back));
    pairs::Settle({host.lanes[0].get(), host.lanes[2].get()});
    ASSERT_TRUE(host[0].Done(sent) && host[2].Done(received));
    EXPECT_TRUE(host[0].Collect(sent).ok() && host[2].Collect(received).ok());
    EXPECT_TRUE(back.Holds(Pattern(bytes, i)));
  }
  for (uint32_t i = 40; i-- > 0;) {  // in reverse order of sending: every body needs kGo
    out.emplace_back(x[i].bytes());
    host[1].Post(Recv(0, static_cast<int32_t>(i), &out.back()));
  }
  EXPECT_TRUE(host.Settle());
  EXPECT_FALSE(host[0].HasWork() || host[1].HasWork());
  for (uint32_t i = 0; i < 40; ++i) EXPECT_TRUE(out[39 - i].Holds(Pattern(x[i].bytes(), i)));
}

TEST(AReceiverThatStopsInALongMessageStarvesNobody) {
  Host host(3);
  Buffer x(Pattern(2 * kPairRingBytes, 1)), out(2 * kPairRingBytes);
  const TransferHandle slow = host[0].Post(Send(1, 0, &x));
  host[0].Poll();
  host[1].Post(Recv(0, 0, &out));
  host[1].Poll();
  for (int i = 0; i < 10; ++i) host[0].Poll();  // the ring is full now
  Buffer y(Pattern(1 << 20, 2)), other(1 << 20);
  const TransferHandle sent = host[0].Post(Send(2, 0, &y));
  host[2].Post(Recv(0, 0, &other));
  pairs::Settle({host.lanes[0].get(), host.lanes[2].get()});
  EXPECT_TRUE(host[0].Done(sent) && !host[0].Done(slow));
  EXPECT_TRUE(other.Holds(Pattern(1 << 20, 2)));
  EXPECT_TRUE(host.Settle());
  EXPECT_TRUE(host[0].Done(slow) && out.Holds(Pattern(2 * kPairRingBytes, 1)));
}

TEST(RefusalsCarryTheirTextUntilEightLaterOnes) {
  Host host(2);
  Buffer nothing(0), out(8);
  for (int32_t i = 0; i < 11; ++i) {
    host[0].Refuse(Send(1, i, &nothing),
                   Error(collops::ERROR_INVALID_PARAM, "reason ", i, std::string(2000, 'x')));
  }
  std::vector<std::string> texts;
  for (int32_t i = 0; i < 11; ++i) {
    const TransferHandle received = host[1].Post(Recv(0, i, &out));
    EXPECT_TRUE(host.Settle());
    ASSERT_TRUE(host[1].Done(received));
    texts.push_back(host[1].Collect(received).message());
  }
  EXPECT_CONTAINS(texts[0], "rank 0 (pid 100) refused message 1 (tag 0): reason 0xxx");
  EXPECT_CONTAINS(texts[10], "reason 10xxx");
  EXPECT_TRUE(texts[10].size() < 1100);
  EXPECT_FALSE(host[0].HasWork() || host[1].HasWork());
  const PairLayout layout(host.base(), 2);
  for (uint64_t stamp = 90; stamp < 99; ++stamp) layout.WriteText(1, stamp, "text");
  EXPECT_EQ(layout.ReadText(1, 90), "");
  EXPECT_EQ(layout.ReadText(1, 91), "text");
}

TEST(LateMailOrAFullMailboxOnlyDelays) {
  for (const bool window : {false, true}) {
    Host host(2);
    Buffer x =
        window ? Buffer(host.NewWindow(0, 500000), Pattern(500000, 1)) : Buffer(Pattern(500000, 1));
    Buffer out(500000);
    const int mailbox = host.group[0].group().peers[1].mailbox.get();
    const int inbox = host.group[1].group().inbox.get();
    int unread = 0;
    while (Post(mailbox, "?", 1, {}) == Posted::kDone) ++unread;
    const TransferHandle sent = host[0].Post(Send(1, 0, &x));
    const TransferHandle received = host[1].Post(Recv(0, 0, &out));
    EXPECT_TRUE(host.Settle());
    EXPECT_FALSE(host[0].Done(sent));
    char mail[64];
    size_t bytes = 0;
    std::vector<UniqueFd> fds;
    for (; unread > 0; --unread) Take(inbox, mail, sizeof(mail), &bytes, &fds);
    host[0].Poll();  // posts the mail, which the test takes out and puts back later
    ASSERT_TRUE(Take(inbox, mail, sizeof(mail), &bytes, &fds) == Posted::kDone);
    ASSERT_EQ(fds.size(), size_t{1});
    EXPECT_TRUE(host.Settle());
    EXPECT_TRUE(out.Untouched());
    EXPECT_TRUE(Post(mailbox, mail, bytes, {fds[0].get()}) == Posted::kDone);
    Finish(&host, 0, sent, 1, received);
    EXPECT_TRUE(out.Holds(Pattern(500000, 1)));
  }
}

TEST(WithoutMemoryForARingTheLaneEnds) {
  Host host(2);
  Buffer x(Pattern(270000, 1)), out(270000);
  const TransferHandle sent = host[0].Post(Send(1, 0, &x));
  host[1].Post(Recv(0, 0, &out));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  EXPECT_TRUE(host.Settle());
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_TRUE(host[0].Done(sent));
  EXPECT_EQ(host[0].Collect(sent).code(), ERROR_OUT_OF_HOST_MEMORY);
  EXPECT_FALSE(host[0].failure().ok());
}

// The 8-byte words of both directions' lines and heads, without bodies.
std::vector<size_t> WordsOfHeads(int ranks) {
  Host host(2, ranks);
  const PairLayout layout(host.base(), ranks);
  std::vector<size_t> words;
  const auto add = [&](const void* line, size_t count) {
    const auto first = static_cast<size_t>(static_cast<const std::byte*>(line) - host.base()) / 8;
    for (size_t i = 0; i < count; ++i) words.push_back(first + i);
  };
  for (const int sender : {0, 1}) {
    add(&layout.receiver_line(sender, 1 - sender), 14);
    add(&layout.sender_line(sender, 1 - sender), 5);
    for (uint64_t slot = 0; slot < 4; ++slot) add(&layout.envelope(sender, 1 - sender, slot), 11);
  }
  return words;
}

// Every word of a peer's lines is set to every kind of invalid number, at every stage of a message:
// the lane may end or stall, but must not write outside its buffers.
TEST(InvalidNumbersOfAPeerNeverCrash) {
  const std::vector<uint64_t> lies = {0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      5,
                                      7,
                                      8,
                                      1000,
                                      uint64_t{1} << 31,
                                      uint64_t{1} << 63,
                                      UINT64_MAX,
                                      UINT64_MAX - 3};
  int ended = 0;
  // In an envelope, a ring and a window; and in pieces, in the slots of 2 ranks.
  for (const int64_t bytes : {40, 9000, 9001, 20000}) {
    const int ranks = bytes == 20000 ? 2 : kRanksOfSmallSlots;
    for (int stage = 0; stage < 4; ++stage) {
      for (const size_t word : WordsOfHeads(ranks)) {
        for (const uint64_t lie : lies) {
          Host host(2, ranks);
          Buffer x = bytes == 9001 ? Buffer(host.NewWindow(0, bytes), Pattern(bytes, 1))
                                   : Buffer(Pattern(bytes, 1));
          Buffer out(bytes), back(bytes);
          const std::vector<PairLane*> both = {host.lanes[0].get(), host.lanes[1].get()};
          if (stage > 0) host[0].Post(Send(1, 0, &x));
          if (stage > 1) host[0].Poll();
          host[1].Post(Recv(0, 0, &out));
          if (stage > 2) host[1].Poll();
          std::memcpy(host.base() + word * sizeof(lie), &lie, sizeof(lie));
          if (stage == 0) host[0].Post(Send(1, 0, &x));
          EXPECT_TRUE(pairs::Settle(both));
          host[1].Post(Send(0, 0, &out));
          host[0].Post(Recv(1, 0, &back));
          EXPECT_TRUE(pairs::Settle(both));
          for (PairLane* lane : both) ended += lane->failure().ok() ? 0 : 1;
          EXPECT_TRUE(x.Holds(Pattern(bytes, 1)));
          if (!host[0].HasWork() && host[0].failure().ok()) EXPECT_TRUE(back.bytes() == bytes);
        }
      }
    }
  }
  EXPECT_TRUE(ended > 300);
}

TEST(AnInvalidEnvelopeNumberIsReported) {
  Host host(2);
  Buffer out(8);
  PairLayout layout(host.base(), 2);
  layout.envelope(0, 1, 1).number.store(9, std::memory_order_release);
  const TransferHandle received = host[1].Post(Recv(0, 0, &out));
  EXPECT_TRUE(host.Settle());
  ASSERT_TRUE(host[1].Done(received));
  const Status status = host[1].Collect(received);
  EXPECT_EQ(status.code(), ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), "rank 0 wrote invalid data: envelope 9 in place of 1");
}

// A sender that accepted it would leave its ring half full for the next message.
TEST(AnUnexpectedVerdictEndsTheSender) {
  for (const uint64_t kind : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}}) {
    Host host(2);
    Buffer x(Pattern(2 * kPairRingBytes, 1)), out(2 * kPairRingBytes);
    const TransferHandle sent = host[0].Post(Send(1, 0, &x));
    host[0].Poll();
    host[1].Post(Recv(0, 0, &out));
    host[1].Poll();
    host[0].Poll();  // has read kGo, and has filled the ring
    collops::shm::VerdictSlot& slot = PairLayout(host.base(), 2).receiver_line(0, 1).verdicts[2];
    slot.number = 1;
    slot.stamp.store(2 << 2 | kind, std::memory_order_release);
    host[0].Poll();
    ASSERT_TRUE(host[0].Done(sent));
    const Status status = host[0].Collect(sent);
    EXPECT_EQ(status.code(), ERROR_PEER_LOST);
    EXPECT_CONTAINS(status.message(), "rank 1 (pid 101) sent verdict " + std::to_string(kind) +
                                          " on message 1, which is not due");
  }
}

}  // namespace
