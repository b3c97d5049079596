// Messages between ranks that are threads, so that TSan can see all of them.
#include <random>

#include "messages/messages_kit.h"

using namespace messages;  // NOLINT: the kit of these tests

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr uint32_t kRounds = 60;
#else
constexpr uint32_t kRounds = 400;
#endif

int64_t BytesOf(uint32_t i) {
  return i % 11 == 0 ? 300000 + i : i % 3 == 0 ? 65601 + i : i % 7 == 0 ? 50000 + i : i % 5 * 1000;
}

}  // namespace

TEST(ManyMessagesAndGroupCallsOfFourThreads) {
  constexpr int kRanks = 4;
  ranks::RunThreads(kRanks, [](int rank, Communicator& communicator) {
    std::shared_ptr<collops::Window> window;
    EXPECT_TRUE(communicator.AllocateWindow(400000, &window).ok());
    std::mt19937 random(7);  // the same on every rank
    for (uint32_t round = 0; round < kRounds; ++round) {
      const int from = static_cast<int>(random() % kRanks);
      const int to = (from + 1 + static_cast<int>(random() % (kRanks - 1))) % kRanks;
      const auto tag = static_cast<int32_t>(round);  // senders may overtake each other
      const int64_t bytes = BytesOf(round);
      const std::vector<std::byte> data = Pattern(bytes, round);
      if (rank == from) {
        Buffer x(data);
        Transfer send = pairs::Send(to, tag, &x);
        if (round % 4 == 0) {
          send.data = window->data();
          if (bytes > 0) std::memcpy(send.data, data.data(), data.size());
        }
        EXPECT_EQ(communicator.Messages("Send", &send, 1).message(), "");
      }
      if (rank == to) {
        Buffer out(bytes);
        const int source = round % 2 == 0 ? from : kAnySource;
        EXPECT_EQ(Recv(communicator, source, tag, &out).message(), "");
        EXPECT_TRUE(out.Holds(data));
      }
      if (round % 6 == 0) EXPECT_EQ(communicator.Barrier().message(), "");
    }
  });
}

TEST(ExchangesAndRefusalsOfThreeThreads) {
  constexpr int kRanks = 3;
  ranks::RunThreads(kRanks, [](int rank, Communicator& communicator) {
    for (uint32_t round = 0; round < kRounds / 4; ++round) {
      std::deque<Buffer> x, out;
      std::vector<Transfer> list;
      for (int peer = 0; peer < kRanks; ++peer) {
        const int64_t bytes = BytesOf(round);
        x.emplace_back(Pattern(bytes, static_cast<uint32_t>(rank)));
        out.emplace_back(bytes);
        list.push_back(pairs::Send(peer, 1, &x.back()));
        list.push_back(pairs::Recv(peer, 1, &out.back()));
      }
      EXPECT_EQ(Exchange(communicator, list).message(), "");
      for (int peer = 0; peer < kRanks; ++peer) {
        EXPECT_TRUE(out[static_cast<size_t>(peer)].Holds(
            Pattern(BytesOf(round), static_cast<uint32_t>(peer))));
      }
      // Rank 1 answers during the barrier.
      Buffer small(3);
      if (rank == 1) EXPECT_TRUE(Refuse(communicator, Transfer::kRecv, 0, 9, "no").ok());
      if (rank == 0) {
        EXPECT_EQ(Send(communicator, 1, 9, &small).code(), collops::ERROR_RANK_MISMATCH);
      }
      EXPECT_EQ(communicator.Barrier().message(), "");
    }
  });
}
