// Streams in chunks: what arrives, and that a sender does not run ahead of its receiver.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <random>

#include "ucx/pairs.h"

namespace {

using collops::ERROR_RANK_MISMATCH;
using collops::ucx::Chunking;
using collops::ucx::ChunkMemory;
using collops::ucx::IncomingChunks;
using collops::ucx::kStreamSlots;
using collops::ucx::OutgoingChunks;
using namespace ucx_tests;

constexpr int64_t kMiB = int64_t{1} << 20;

Deadline Limit() {
  return Deadline::After(kLimitS);
}

// Advances both until both are done, or one fails.
Status Run(Worker* worker, OutgoingChunks* out, IncomingChunks* in) {
  Status status;
  const auto done = [&] {
    if (status.ok()) status = out->Advance();
    if (status.ok()) status = in->Advance();
    return !status.ok() || (out->done() && in->done());
  };
  const Status waited = worker->Until("the streams", done, {}, Limit());
  return status.ok() ? waited : status;
}

// One stream in each direction, of all that `chunking` says.
void Exchange(const Entry& e, const Chunking& chunking, uint64_t sequence) {
  const int peer = 1 - e.me;
  const auto bytes = static_cast<size_t>(chunking.bytes);
  std::vector<std::byte> sent = DataOf(e.me, peer, bytes);
  std::vector<std::byte> received(bytes + 1, std::byte{0xee});
  const Tag mine = {sequence, e.me, 3};
  const Tag theirs = {sequence, peer, 3};
  OutgoingChunks out(&e.worker, peer, mine, theirs, {sent.data(), 0}, chunking);
  IncomingChunks in(&e.worker, peer, theirs, mine, {received.data(), 0}, chunking);
  out.Offer(chunking.count());
  ASSERT_EQ(Run(&e.worker, &out, &in).message(), "");
  EXPECT_EQ(in.arrived(), chunking.count());
  EXPECT_TRUE(received[bytes] == std::byte{0xee});
  received.pop_back();
  EXPECT_TRUE(received == DataOf(peer, e.me, bytes));
}

// The kernel's record of the most memory that this process has had.
int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

TEST(StreamsOfAllSizesArriveInBothDirectionsAtOnce) {
  RunConnected(2, [](const Entry& e) {
    uint64_t sequence = 0;
    for (const int64_t free : {0, 1, 100}) {
      for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{4097}, kMiB}) {
        Exchange(e, {bytes, 4096, free}, ++sequence);
      }
      Exchange(e, {37 * kMiB + 5, 512 << 10, free}, ++sequence);
    }
    Settle(e);
  });
}

// Streams of random sizes over a short connection: where it is full, a part of any message, also of
// one that ends a stream, is left with the sender.
TEST(AnyStreamThatIsDoneNeedsItsSenderNoMore) {
  setenv("UCX_TCP_SNDBUF", "32k", 1);
  setenv("UCX_TCP_RCVBUF", "32k", 1);
  RunConnected(2, [](const Entry& e) {
    std::mt19937 random(7);
    std::vector<std::byte> memory(40000);
    const auto sizes = [&random](int64_t least) {
      return least + static_cast<int64_t>(random() % 20000);
    };
    uint64_t sequence = 0;
    for (int round = 0; round < 400; ++round) {
      // Both ranks draw the same sizes.
      std::vector<Chunking> cut(1000);
      for (Chunking& each : cut) each = {sizes(round % 2 == 0 ? 7000 : 1), 256 << 10, 1};
      const auto tag = [&](int source, uint64_t stream) {
        return Tag{sequence + stream, source, 3};
      };
      size_t streams = 0;
      if (e.me == 0) {
        std::list<OutgoingChunks> out;
        while (out.empty() || out.back().done()) {
          out.emplace_back(&e.worker, 1, tag(0, streams), tag(1, streams),
                           ChunkMemory{memory.data(), 0}, cut[streams]);
          ++streams;
          out.back().Offer(1);
          for (int tries = 0; tries < 2; ++tries) ASSERT_TRUE(out.back().Advance().ok());
        }
        e.mesh.Say(0, 1, std::to_string(streams));
        EXPECT_EQ(e.mesh.Hear(0, 1), "all but the last are here");
        const auto done = [&] { return !out.back().Advance().ok() || out.back().done(); };
        EXPECT_EQ(e.worker.Until("the last stream", done, {}, Limit()).message(), "");
      } else {
        streams = std::stoul(e.mesh.Hear(1, 0));
        for (size_t i = 0; i < streams; ++i) {
          IncomingChunks in(&e.worker, 0, tag(0, i), tag(1, i), {memory.data(), 0}, cut[i]);
          const auto done = [&] { return !in.Advance().ok() || in.done(); };
          if (i + 1 == streams) e.mesh.Say(1, 0, "all but the last are here");
          ASSERT_TRUE(e.worker.Until("a stream", done, {}, Deadline::After(3)).ok());
        }
      }
      sequence += streams;
    }
    Settle(e);
  });
  unsetenv("UCX_TCP_SNDBUF");
  unsetenv("UCX_TCP_RCVBUF");
}

TEST(ARingReceivesWhatItsConsumerHasReleased) {
  RunConnected(2, [](const Entry& e) {
    constexpr int64_t kChunk = 1000;
    constexpr int64_t kSlots = 3;
    const Chunking chunking = {20 * kChunk - 1, kChunk, 0};
    const int peer = 1 - e.me;
    const auto bytes = static_cast<size_t>(chunking.bytes);
    const std::vector<std::byte> all = DataOf(e.me, peer, bytes);
    std::vector<std::byte> out_ring(kSlots * kChunk);
    std::vector<std::byte> in_ring(kSlots * kChunk);
    std::vector<std::byte> received(bytes);
    const Tag mine = {1, e.me, 0};
    const Tag theirs = {1, peer, 0};
    OutgoingChunks out(&e.worker, peer, mine, theirs, {out_ring.data(), kSlots}, chunking);
    IncomingChunks in(&e.worker, peer, theirs, mine, {in_ring.data(), kSlots}, chunking);
    int64_t offered = 0;
    int64_t used = 0;
    Status status;
    const auto done = [&] {
      for (; offered < chunking.count() && offered < out.sent() + kSlots; ++offered) {
        std::memcpy(ChunkMemory{out_ring.data(), kSlots}.At(offered, kChunk),
                    all.data() + offered * kChunk, static_cast<size_t>(chunking.BytesOf(offered)));
      }
      out.Offer(offered);
      for (; used < in.arrived(); ++used) {
        std::memcpy(received.data() + used * kChunk,
                    ChunkMemory{in_ring.data(), kSlots}.At(used, kChunk),
                    static_cast<size_t>(chunking.BytesOf(used)));
      }
      in.Release(used);
      if (status.ok()) status = out.Advance();
      if (status.ok()) status = in.Advance();
      return !status.ok() || (out.done() && in.done() && used == chunking.count());
    };
    EXPECT_EQ(e.worker.Until("the rings", done, {}, Limit()).message(), "");
    EXPECT_EQ(status.message(), "");
    EXPECT_TRUE(received == DataOf(peer, e.me, bytes));
    Settle(e);
  });
}

TEST(AStreamSaysWhetherItWaitsForItsPeer) {
  RunConnected(2, [](const Entry& e) {
    constexpr int64_t kChunk = 1000;
    constexpr int64_t kSlots = 3;
    const Chunking chunking = {6 * kChunk, kChunk, 0};
    const Tag sent = {1, 0, 0};
    const Tag credits = {1, 1, 0};
    std::vector<std::byte> memory(6 * kChunk);
    if (e.me == 0) {
      OutgoingChunks out(&e.worker, 1, sent, credits, {memory.data(), 0}, chunking);
      const auto done = [&] { return !out.Advance().ok() || out.done(); };
      EXPECT_FALSE(done());
      EXPECT_FALSE(out.waits_for_peer());  // nothing is offered
      out.Offer(chunking.count());
      EXPECT_FALSE(done());
      EXPECT_TRUE(out.waits_for_peer());
      e.mesh.Say(0, 1, "offered");
      EXPECT_EQ(e.worker.Until("the stream", done, {}, Limit()).message(), "");
      EXPECT_FALSE(out.waits_for_peer());
    } else {
      EXPECT_EQ(e.mesh.Hear(1, 0), "offered");
      IncomingChunks in(&e.worker, 0, sent, credits, {memory.data(), kSlots}, chunking);
      EXPECT_TRUE(in.Advance().ok());
      EXPECT_TRUE(in.waits_for_peer());
      const auto full = [&] { return !in.Advance().ok() || in.arrived() == kSlots; };
      EXPECT_EQ(e.worker.Until("the ring", full, {}, Limit()).message(), "");
      EXPECT_FALSE(in.waits_for_peer());  // its ring has not been read
      const auto done = [&] {
        in.Release(in.arrived());
        return !in.Advance().ok() || in.done();
      };
      EXPECT_EQ(e.worker.Until("the stream", done, {}, Limit()).message(), "");
      EXPECT_FALSE(in.waits_for_peer());
    }
    Settle(e);
  });
}

TEST(ASenderDoesNotRunAheadOfItsReceiver) {
  RunConnected(2, [](const Entry& e) {
    const Chunking chunking = {64 * kMiB, 256 << 10, 0};
    std::vector<std::byte> data(static_cast<size_t>(chunking.bytes), static_cast<std::byte>(e.me));
    const Tag of_0 = {1, 0, 0};
    const Tag of_1 = {1, 1, 0};
    e.mesh.Meet(e.me);
    Status status;
    if (e.me == 0) {
      OutgoingChunks out(&e.worker, 1, of_0, of_1, {data.data(), 0}, chunking);
      out.Offer(chunking.count());
      // As far as it gets without the receiver, which has not begun.
      const auto nothing = [&] {
        if (status.ok()) status = out.Advance();
        return !status.ok();
      };
      EXPECT_EQ(e.worker.Until("", nothing, {}, Deadline::After(0.3)).code(),
                collops::ERROR_TIMEOUT);
      EXPECT_EQ(out.sent(), 0);
      e.mesh.Say(0, 1, "begin");
      const auto done = [&] {
        if (status.ok()) status = out.Advance();
        return !status.ok() || out.done();
      };
      EXPECT_EQ(e.worker.Until("the stream", done, {}, Limit()).message(), "");
    } else {
      // Takes in what comes, without a receive for it.
      const int64_t before = PeakBytes();
      pollfd update = {e.mesh.At(1, 0), POLLIN, 0};
      while (poll(&update, 1, 0) == 0) e.worker.Progress();
      EXPECT_EQ(e.mesh.Hear(1, 0), "begin");
      IncomingChunks in(&e.worker, 0, of_0, of_1, {data.data(), 0}, chunking);
      const auto done = [&] {
        if (status.ok()) status = in.Advance();
        return !status.ok() || in.done();
      };
      EXPECT_EQ(e.worker.Until("the stream", done, {}, Limit()).message(), "");
      EXPECT_TRUE(PeakBytes() - before < (kStreamSlots + 8) * kMiB);
      EXPECT_TRUE(data == std::vector<std::byte>(data.size(), std::byte{0}));
    }
    EXPECT_EQ(status.message(), "");
    Settle(e);
  });
}

TEST(SidesThatDisagreeOnTheLengthFindIt) {
  RunConnected(2, [](const Entry& e) {
    std::vector<std::byte> data(10000);
    const Tag of_0 = {1, 0, 0};
    const Tag of_1 = {1, 1, 0};
    Status status;
    if (e.me == 0) {
      IncomingChunks in(&e.worker, 1, of_1, of_0, {data.data(), 0}, {10000, 1000, 0});
      const auto done = [&] {
        status = in.Advance();
        return !status.ok() || in.done();
      };
      EXPECT_EQ(e.worker.Until("the stream", done, {}, Limit()).message(), "");
      EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
      EXPECT_CONTAINS(status.message(),
                      "peer 1 sent 999 bytes as chunk 9 of a message, it has 1000");
    } else {
      OutgoingChunks out(&e.worker, 0, of_1, of_0, {data.data(), 0}, {9999, 1000, 0});
      out.Offer(10);
      const auto done = [&] {
        status = out.Advance();
        return !status.ok() || out.done();
      };
      EXPECT_EQ(e.worker.Until("the stream", done, {}, Limit()).message(), "");
      EXPECT_EQ(status.message(), "");
    }
    Settle(e);
  });
}
