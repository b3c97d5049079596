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
