// Messages between ranks of different hosts: the pair lane over UCX, between processes.
#include <cstring>

#include "collops/comm/backends/ucx/link.h"
#include "pairs/pair_kit.h"
#include "ucx/pairs.h"

namespace {

using collops::Status;
using collops::ucx::RemoteWire;
using pairs::Buffer;
using pairs::PairLane;
using pairs::Pattern;
using pairs::TransferHandle;
using ucx_tests::Deadline;
using ucx_tests::Entry;

// One rank's end: its lane over UCX.
struct End {
  explicit End(const Entry& e)
      : group(e.mesh.size()),
        wire(&e.worker, e.me, e.mesh.size()),
        lane(Wires(&wire, e.mesh.size()), &group[e.me]) {}

  static collops::PairWires Wires(RemoteWire* remote, int size) {
    collops::PairWires wires(remote, size);
    wires.remote = remote;
    return wires;
  }

  // Polls until the transfer is done, and returns its outcome.
  Status Await(TransferHandle handle) {
    const Deadline deadline = Deadline::After(ucx_tests::kLimitS);
    while (!lane.Done(handle) && !deadline.Passed()) lane.Poll();
    return lane.Collect(handle);
  }
  // Polls until all that this rank owes is on its way.
  void PayAll() {
    const Deadline deadline = Deadline::After(ucx_tests::kLimitS);
    while (lane.OwesVerdicts() && !deadline.Passed()) lane.Poll();
  }

  pairs::Group group;
  RemoteWire wire;
  PairLane lane;
};

uint32_t Seed(int from, size_t message) {
  return static_cast<uint32_t>(from) * 100 + static_cast<uint32_t>(message);
}

}  // namespace

// The sender posts far more than the receiver lets it send before it reads.
TEST(ManyMessagesWaitForAReceiverThatComesLate) {
  ucx_tests::RunConnected(2, [](const Entry& e) {
    constexpr size_t kCount = 20 * RemoteWire::kMostUnread;
    End end(e);
    std::deque<Buffer> buffers;
    std::vector<TransferHandle> handles;
    if (e.me == 0) {
      for (size_t i = 0; i < kCount; ++i) {
        buffers.emplace_back(Pattern(2000, Seed(0, i)));
        handles.push_back(end.lane.Post(pairs::Send(1, 5, &buffers.back())));
      }
      for (int i = 0; i < 1000; ++i) end.lane.Poll();
      e.mesh.Say(0, 1, "posted");
      for (const TransferHandle handle : handles) EXPECT_EQ(end.Await(handle).message(), "");
    } else {
      EXPECT_EQ(e.mesh.Hear(1, 0), "posted");
      for (size_t i = 0; i < kCount; ++i) {
        Buffer out(2000);
        EXPECT_EQ(end.Await(end.lane.Post(pairs::Recv(0, 5, &out))).message(), "");
        EXPECT_TRUE(out.Holds(Pattern(2000, Seed(0, i))));
      }
    }
    end.PayAll();
    ucx_tests::Settle(e);
  });
}

// Heads that match no receive yet are read and kept, with their bodies, however many there are.
TEST(ReceivesMayComeInTheReverseOrderOfManySends) {
  ucx_tests::RunConnected(2, [](const Entry& e) {
    constexpr int32_t kCount = 100;
    End end(e);
    std::deque<Buffer> buffers;
    std::vector<TransferHandle> handles;
    for (int32_t tag = 0; e.me == 0 && tag < kCount; ++tag) {
      buffers.emplace_back(Pattern(100 * tag, Seed(0, static_cast<size_t>(tag))));
      handles.push_back(end.lane.Post(pairs::Send(1, tag, &buffers.back())));
    }
    for (int32_t tag = kCount; e.me == 1 && tag-- > 0;) {
      Buffer out(100 * tag);
      EXPECT_EQ(end.Await(end.lane.Post(pairs::Recv(0, tag, &out))).message(), "");
      EXPECT_TRUE(out.Holds(Pattern(100 * tag, Seed(0, static_cast<size_t>(tag)))));
    }
    for (const TransferHandle handle : handles) EXPECT_EQ(end.Await(handle).message(), "");
    end.PayAll();
    ucx_tests::Settle(e);
  });
}

// After the lane has ended nothing writes into a receiver's memory, also of a body under way.
TEST(MemoryIsGivenBackWhenTheLaneEnds) {
  ucx_tests::RunConnected(2, [](const Entry& e) {
    End end(e);
    Buffer large(64 << 20);
    if (e.me == 0) std::memset(large.data(), 1, static_cast<size_t>(large.bytes()));
    const TransferHandle handle =
        end.lane.Post(e.me == 0 ? pairs::Send(1, 0, &large) : pairs::Recv(0, 0, &large));
    while (e.me == 1 && *large.data() != std::byte{1}) end.lane.Poll();
    if (e.me == 1) {
      end.lane.End(Status(collops::ERROR_ABORTED, "the receiver gave up"));
      EXPECT_EQ(end.lane.Collect(handle).message(), "the receiver gave up");
      const std::vector<std::byte> before(large.data(), large.data() + large.bytes());
      e.mesh.Say(1, 0, "over");
      for (int i = 0; i < 2000; ++i) e.worker.Progress();
      EXPECT_EQ(std::memcmp(before.data(), large.data(), before.size()), 0);
      EXPECT_EQ(e.mesh.Hear(1, 0), "over");
    } else {
      pollfd update = {e.mesh.At(0, 1), POLLIN, 0};
      while (poll(&update, 1, 0) == 0) end.lane.Poll();
      // A socket that is closed with unread bytes also loses what was sent through it.
      EXPECT_EQ(e.mesh.Hear(0, 1), "over");
      EXPECT_FALSE(end.lane.Done(handle));
      end.lane.End(Status(collops::ERROR_ABORTED, "the sender heard of it"));
      EXPECT_EQ(end.lane.Collect(handle).message(), "the sender heard of it");
      e.mesh.Say(0, 1, "over");
    }
  });
}

// What no rank sends ends the lane, whatever is wrong in it.
TEST(AFrameThatCannotBeEndsTheLane) {
  using namespace collops::ucx;
  for (const int fault : {0, 1, 2, 3}) {
    ucx_tests::RunConnected(2, [fault](const Entry& e) {
      if (e.me == 0) {
        EnvelopeFrame frame = {};
        frame.number = fault == 0 ? 7 : 1;
        frame.head.elements = 8;
        frame.head.digest = pairs::Digest(collops::DType::kUInt8, 8);
        frame.head.dtype = static_cast<int16_t>(collops::DType::kUInt8);
        frame.payload_bytes = fault == 1 ? 4000000000U : 0;
        frame.head.form = fault == 2 ? 77 : 0;  // 3: the body is missing
        ucx_tests::Request request;
        const uint64_t tag = Tag{0, 0, kEnvelopeStream}.Of(TagKind::kData);
        EXPECT_EQ(e.worker.Send(1, tag, &frame, sizeof(frame), &request).message(), "");
        ucx_tests::Settle(e);
        return;
      }
      End end(e);
      Buffer out(8);
      const Status status = end.Await(end.lane.Post(pairs::Recv(0, 0, &out)));
      EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
      EXPECT_TRUE(status.message().find("rank 0 sent invalid data") != std::string::npos);
      EXPECT_TRUE(out.Untouched());
      ucx_tests::Settle(e);
    });
  }
}

TEST(ARankSendsToItself) {
  collops::ucx::SelfWire wire;
  pairs::Group group(1);
  PairLane lane(&wire, &group[0]);
  const std::vector<std::byte> data = Pattern(1 << 20, 3);
  Buffer sent(data);
  Buffer received(1 << 20);
  Buffer nothing(0);
  const TransferHandle handles[] = {lane.Post(pairs::Send(0, 2, &sent)),
                                    lane.Post(pairs::Recv(0, 1, &nothing)),
                                    lane.Post(pairs::Recv(collops::kAnySource, 2, &received)),
                                    lane.Post(pairs::Send(0, 1, &nothing))};
  EXPECT_TRUE(pairs::Settle({&lane}));
  for (const TransferHandle handle : handles) {
    EXPECT_TRUE(lane.Done(handle));
    EXPECT_EQ(lane.Collect(handle).message(), "");
  }
  EXPECT_TRUE(received.Holds(data));
  lane.Refuse(pairs::Send(0, 4, &nothing), Status(collops::ERROR_INVALID_PARAM, "a bad tensor"));
  const TransferHandle refused = lane.Post(pairs::Recv(0, 4, &nothing));
  EXPECT_TRUE(pairs::Settle({&lane}));
  EXPECT_EQ(lane.Collect(refused).message(),
            "Recv: rank 0 (pid 100) refused message 3 (tag 4): a bad tensor");
}
