// Messages between processes on the shm backend: data, refusals, and their effect on group calls
// and other ranks.
#include "messages/messages_kit.h"

using namespace messages;  // NOLINT: the kit of these tests

namespace {

constexpr int64_t kLengths[] = {0, 1, 100, 4160, 70000, 262208, 262209, 1000003, 9000000};

std::string Name(int rank) {
  return "rank " + std::to_string(rank) + " (pid ";
}

}  // namespace

TEST(EveryLengthArrivesFromPlainMemoryAndFromAWindow) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    std::shared_ptr<collops::Window> window;
    EXPECT_TRUE(communicator.AllocateWindow(9000100, &window).ok());
    uint32_t seed = 0;
    for (int round = 0; round < 3; ++round) {
      for (const int64_t bytes : kLengths) {
        const int sender = static_cast<int>(++seed % 2);
        const std::vector<std::byte> data = Pattern(bytes, seed);
        Buffer x(data), out(bytes);
        Transfer send = pairs::Send(1 - rank, 3, &x);
        if (round > 0) {
          send.data = static_cast<std::byte*>(window->data()) + 7 * round;
          if (bytes > 0) std::memcpy(send.data, data.data(), data.size());
        }
        if (rank == sender) {
          EXPECT_EQ(communicator.Messages("Send", &send, 1).message(), "");
          // The receiver does not read the memory any more.
          if (bytes > 0) std::memset(send.data, 0xee, static_cast<size_t>(bytes));
        } else {
          int source = -1;
          EXPECT_EQ(Recv(communicator, sender, 3, &out, &source).message(), "");
          EXPECT_EQ(source, sender);
          EXPECT_TRUE(out.Holds(data));
        }
      }
    }
  });
}

TEST(MessagesAreMatchedInOrderPerTagAndFromAnySource) {
  ranks::Run(3, [](int rank, Communicator& communicator) {
    Buffer first(Pattern(5, 10U + static_cast<uint32_t>(rank)));
    Buffer second(Pattern(5, 20U + static_cast<uint32_t>(rank)));
    if (rank > 0) {
      // Tag 9 is sent first and received last.
      Buffer late(Pattern(300000, 30));
      EXPECT_EQ(Exchange(communicator, {pairs::Send(0, 9, &late), pairs::Send(0, 4, &first),
                                        pairs::Send(0, 4, &second)})
                    .message(),
                "");
      return;
    }
    int taken[3] = {};
    for (int i = 0; i < 4; ++i) {
      Buffer out(5);
      int source = -1;
      EXPECT_EQ(Recv(communicator, kAnySource, 4, &out, &source).message(), "");
      ASSERT_TRUE(source == 1 || source == 2);
      const uint32_t seed = (taken[source]++ == 0 ? 10U : 20U) + static_cast<uint32_t>(source);
      EXPECT_TRUE(out.Holds(Pattern(5, seed)));
    }
    for (const int source : {2, 1}) {
      Buffer out(300000);
      EXPECT_EQ(Recv(communicator, source, 9, &out).message(), "");
      EXPECT_TRUE(out.Holds(Pattern(300000, 30)));
    }
  });
}

TEST(AnExchangeNeedsNoOrder) {
  constexpr int kRanks = 3;
  ranks::Run(kRanks, [](int rank, Communicator& communicator) {
    for (const int64_t bytes : kLengths) {
      std::deque<Buffer> x, out;
      std::vector<Transfer> list;
      for (int peer = 0; peer < kRanks; ++peer) {  // including this rank itself
        x.emplace_back(Pattern(bytes, static_cast<uint32_t>(rank * kRanks + peer)));
        out.emplace_back(bytes);
        list.push_back(pairs::Send(peer, 2, &x.back()));
        list.push_back(pairs::Recv((peer + rank) % kRanks, 2, &out.back()));
      }
      EXPECT_EQ(Exchange(communicator, list).message(), "");
      for (int i = 0; i < kRanks; ++i) {
        const int source = (i + rank) % kRanks;
        EXPECT_TRUE(out[static_cast<size_t>(i)].Holds(
            Pattern(bytes, static_cast<uint32_t>(source * kRanks + rank))));
      }
    }
    EXPECT_EQ(Exchange(communicator, {}).message(), "");
  });
}

TEST(TheOtherRanksTakeNoPart) {
  const ranks::Event over;
  ranks::Run(4, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    if (rank > 1) {
      over.Wait();  // this rank is in no call
    } else {
      for (int i = 0; i < 300; ++i) Pass(communicator, i % 2, 1 - i % 2, static_cast<uint32_t>(i));
      over.Set();
    }
    EXPECT_EQ(communicator.Barrier().message(), "");
  });
}

TEST(GroupCallsAndMessagesDoNotMix) {
  ranks::Run(3, [](int rank, Communicator& communicator) {
    for (int round = 0; round < 200; ++round) {
      Pass(communicator, round % 3, (round + 1) % 3, static_cast<uint32_t>(round));
      EXPECT_EQ(communicator.Barrier().message(), "");
      if (round % 5 != 0) continue;
      const int64_t mine = rank + round;
      int64_t all[3] = {};
      EXPECT_EQ(communicator.Share(collops::Agreement("Share"), &mine, 8, all).message(), "");
      EXPECT_EQ(all[2], 2 + round);
    }
  });
}

TEST(ARefusedReceiveIsReportedToItsSenderOnly) {
  const ranks::Event refused;
  ranks::Run(3, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    Buffer x(Pattern(100, 1)), out(100);
    for (int round = 0; round < 5; ++round) {
      if (rank == 0) {
        refused.Wait();  // the refusal is posted before its message
        ExpectError(Send(communicator, 1, 7, &x), collops::ERROR_RANK_MISMATCH,
                    {"Send: " + Name(1), "refused message", "(tag 7): out is read-only"});
      } else if (rank == 1) {
        EXPECT_TRUE(Refuse(communicator, Transfer::kRecv, 0, 7, "out is read-only").ok());
        refused.Set();
      }
      EXPECT_FALSE(communicator.failed());
      // Rank 1 answers during its next call, of messages or of the group.
      if (round % 2 == 0) Pass(communicator, 0, 1, 5);
      EXPECT_EQ(communicator.Barrier().message(), "");
      Pass(communicator, 1, 0, 6);
    }
  });
}

TEST(ARefusedSendIsReportedToItsReceiverOnly) {
  ranks::Run(3, [](int rank, Communicator& communicator) {
    Buffer out(100), long_out(300000);
    for (Buffer* to : {&out, &long_out}) {
      if (rank == 0) {
        EXPECT_TRUE(Refuse(communicator, Transfer::kSend, 1, 7, "x is not contiguous").ok());
      } else if (rank == 1) {
        ExpectError(Recv(communicator, 0, 7, to), collops::ERROR_RANK_MISMATCH,
                    {"Recv: " + Name(0), "refused message", "(tag 7): x is not contiguous"});
        EXPECT_TRUE(to->Untouched());
      }
      EXPECT_FALSE(communicator.failed());
      EXPECT_EQ(communicator.Barrier().message(), "");
      Pass(communicator, 0, 1, 6);
    }
  });
}

TEST(OneRefusalOfAnExchangeLeavesTheOthersWhole) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    Buffer x(Pattern(300000, static_cast<uint32_t>(rank))), out(300000), other(100);
    if (rank == 0) {
      EXPECT_TRUE(Refuse(communicator, Transfer::kSend, 1, 8, "no").ok());
      EXPECT_EQ(Exchange(communicator, {pairs::Send(1, 1, &x), pairs::Recv(1, 1, &out)}).message(),
                "");
    } else {
      ExpectError(Exchange(communicator, {pairs::Recv(0, 8, &other), pairs::Recv(0, 1, &out),
                                          pairs::Send(0, 1, &x)}),
                  collops::ERROR_RANK_MISMATCH, {"(tag 8): no"});
    }
    EXPECT_TRUE(out.Holds(Pattern(300000, static_cast<uint32_t>(1 - rank))));
    Pass(communicator, 1, 0, 6);
  });
}

TEST(AMismatchEndsTheGroupWithOneText) {
  for (const bool by_type : {true, false}) {
    for (const int64_t bytes : {int64_t{48}, int64_t{480000}}) {
      const ranks::Event ended;
      ranks::Run(3, [&](int rank, Communicator& communicator) {
        EXPECT_EQ(communicator.Barrier().message(), "");
        Buffer x(Pattern(bytes, 1)), out(by_type ? bytes : bytes / 2);
        const DType expected = by_type ? DType::kFloat32 : DType::kInt32;
        const std::string sent = std::to_string(bytes / 4);
        const std::string taken =
            by_type ? sent + " float32" : std::to_string(bytes / 8) + " int32";
        Status status;
        if (rank == 0) status = Send(communicator, 1, 2, &x, DType::kInt32);
        if (rank == 1) status = Recv(communicator, 0, 2, &out, nullptr, expected);
        if (rank == 2) {
          ended.Wait(2);
          status = communicator.Barrier();
        }
        ExpectError(status, collops::ERROR_RANK_MISMATCH,
                    {"message 1 (tag 2): " + Name(0), ") sends " + sent + " int32, " + Name(1),
                     ") receives " + taken + ": both must state"});
        EXPECT_TRUE(out.Untouched());
        if (rank < 2) ended.Set();
        EXPECT_TRUE(communicator.failed());
        EXPECT_CONTAINS(Send(communicator, 1, 2, &x).message(), "make a new one");
      });
    }
  }
}

TEST(AnInvalidPeerOrTagIsALocalError) {
  ranks::Run(2, [](int /*rank*/, Communicator& communicator) {
    Buffer x(4);
    ExpectError(Send(communicator, 2, 0, &x), collops::ERROR_INVALID_PARAM,
                {"Send: the receiver must be in [0, 2), got 2"});
    ExpectError(Send(communicator, kAnySource, 0, &x), collops::ERROR_INVALID_PARAM, {"got -1"});
    ExpectError(Recv(communicator, -2, 0, &x), collops::ERROR_INVALID_PARAM,
                {"Recv: the source must be in [0, 2), got -2"});
    ExpectError(Recv(communicator, 0, -1, &x), collops::ERROR_INVALID_PARAM,
                {"Recv: tag must be >= 0, got -1"});
    Pass(communicator, 1, 0, 3);
  });
}
