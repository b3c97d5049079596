// Lists of transfers in random orders of steps, which a seed repeats: all messages arrive.
#include <random>
#include <string>
#include <vector>

#include "pairs/queue_wire.h"

namespace {

using pairs::Buffer;
using pairs::DType;
using pairs::PairLane;
using pairs::Pattern;
using pairs::QueueRanks;
using pairs::Status;
using pairs::Transfer;
using pairs::TransferHandle;

// One message: who sends it to whom, and where it stands in the list of either.
struct Message {
  int from;
  int to;
  int32_t tag;
  int64_t bytes;
  DType received_as = DType::kUInt8;
};

// The transfers of one rank, in its order.
class Member {
 public:
  Member(QueueRanks* ranks, int rank, const std::vector<Message>& messages, bool receives_first)
      : lane_((*ranks)[rank]) {
    int receives = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      const auto seed = static_cast<uint32_t>(i + 1);
      if (message.from == rank) {
        buffers_.emplace_back(Pattern(message.bytes, seed));
        list_.push_back(pairs::Send(message.to, message.tag, &buffers_.back()));
      }
      if (message.to == rank) {
        buffers_.emplace_back(message.bytes);
        const Transfer receive =
            pairs::Recv(message.from, message.tag, &buffers_.back(), message.received_as);
        list_.insert(receives_first ? list_.begin() + receives++ : list_.end(), receive);
        received_.push_back({&buffers_.back(), Pattern(message.bytes, seed)});
      }
    }
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Posts the next transfer; false if there is none.
  bool Post() {
    if (handles_.size() == list_.size()) return false;
    handles_.push_back(lane_.Post(list_[handles_.size()]));
    return true;
  }
  bool Poll() { return lane_.Poll(); }

  // The first error of its transfers; fails the test if one is still open.
  Status Outcome() {
    EXPECT_EQ(handles_.size(), list_.size());
    Status first;
    for (const TransferHandle handle : handles_) {
      if (!EXPECT_TRUE(PairLane::Done(handle))) return first;
      const Status status = PairLane::Collect(handle);
      if (first.ok()) first = status;
    }
    return first;
  }
  int64_t NumWrong() const {
    int64_t wrong = 0;
    for (const auto& [buffer, want] : received_) wrong += buffer->Holds(want) ? 0 : 1;
    return wrong;
  }

 private:
  PairLane& lane_;
  std::deque<Buffer> buffers_;
  std::vector<Transfer> list_;
  std::vector<TransferHandle> handles_;
  std::vector<std::pair<Buffer*, std::vector<std::byte>>> received_;
};

// Runs the messages once: each step posts a transfer, delivers an item or polls a rank. `at_once`:
// each rank posts its whole list first, as one call does. The outcome of every rank.
std::vector<Status> RunOnce(const std::vector<Message>& messages, int size, uint32_t seed,
                            bool piecemeal, int64_t* wrong) {
  std::mt19937 random(seed);
  QueueRanks ranks(size);
  ranks.net.piecemeal = piecemeal;
  std::deque<Member> members;
  const auto sides = static_cast<unsigned>(size);
  const bool at_once = random() % 2 == 0;
  for (int rank = 0; rank < size; ++rank) {
    members.emplace_back(&ranks, rank, messages, random() % 2 == 0);
    while (at_once && members.back().Post()) {
    }
  }
  for (unsigned step = 0; step < 30 * sides * sides; ++step) {
    const auto one = [&] { return static_cast<int>(random() % sides); };
    if (random() % 2 == 0) ranks.net.Deliver(one(), one(), static_cast<int>(random() % 3));
    Member& member = members[static_cast<size_t>(one())];
    if (random() % 4 != 0 || !member.Post()) member.Poll();
  }
  for (bool moved = true; moved;) {
    moved = ranks.net.DeliverAll();
    for (Member& member : members) {
      while (member.Post()) moved = true;
      moved = member.Poll() || moved;
    }
  }
  std::vector<Status> outcomes;
  for (Member& member : members) {
    outcomes.push_back(member.Outcome());
    *wrong += member.NumWrong();
  }
  for (int rank = 0; rank < size; ++rank) EXPECT_FALSE(ranks[rank].HasWork());
  return outcomes;
}

// All messages arrive, in whatever order the ranks go on.
void ExpectArrivals(const std::vector<Message>& messages, int size, bool piecemeal = false) {
  int64_t wrong = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    for (const Status& status : RunOnce(messages, size, seed, piecemeal, &wrong)) {
      EXPECT_EQ(status.message(), "");
    }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace

TEST(TwoRanksExchangeSmallMessages) {
  ExpectArrivals({{0, 1, 3, 8}, {1, 0, 3, 5}}, 2);
}

// A body byte by byte.
TEST(BodiesThatAreTakenInPieces) {
  ExpectArrivals({{0, 1, 3, 8}, {1, 0, 3, 7}, {0, 1, 3, 6}}, 2, true);
}

// A body that does not fit into the envelope has to be asked for.
TEST(LongBodies) {
  ExpectArrivals({{0, 1, 3, 100}, {1, 0, 3, 40}}, 2);
}

TEST(ReceivesInAnotherOrderThanTheSends) {
  ExpectArrivals({{0, 1, 3, 4}, {0, 1, 4, 5}, {1, 0, 3, 6}}, 2);
  // Of one length, so that only the tags differ.
  int64_t wrong = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    QueueRanks ranks(2);
    Buffer a(Pattern(5, 1)), b(Pattern(5, 2)), first(5), second(5);
    const TransferHandle sent[] = {ranks[0].Post(pairs::Send(1, 3, &a)),
                                   ranks[0].Post(pairs::Send(1, 4, &b))};
    const TransferHandle received[] = {ranks[1].Post(pairs::Recv(0, 4, &second)),
                                       ranks[1].Post(pairs::Recv(0, 3, &first))};
    for (unsigned step = 0; step < seed % 12; ++step) {
      ranks.net.Deliver(0, 1, 0);
      ranks[1].Poll();
    }
    ranks.Settle();
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(ranks[0].Done(sent[i]) && ranks[0].Collect(sent[i]).ok());
      EXPECT_TRUE(ranks[1].Done(received[i]) && ranks[1].Collect(received[i]).ok());
    }
    wrong += first.Holds(Pattern(5, 1)) && second.Holds(Pattern(5, 2)) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
}

// Room for two envelopes and two verdicts per pair.
TEST(MoreMessagesThanThereIsRoomFor) {
  std::vector<Message> messages;
  for (int64_t i = 0; i < 7; ++i) messages.push_back({0, 1, 3, i});
  for (int64_t i = 0; i < 5; ++i) messages.push_back({1, 0, 3, 8 - i});
  ExpectArrivals(messages, 2);
}

TEST(ThreeRanksInARing) {
  ExpectArrivals({{0, 1, 1, 8}, {1, 2, 1, 7}, {2, 0, 1, 6}, {0, 2, 1, 3}}, 3);
}

// The receiver expects another type: both lists end with the error, at whatever point.
TEST(ADisagreementEndsBothLists) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    int64_t wrong = 0;
    const std::vector<Message> messages = {{0, 1, 3, 8, DType::kInt32}, {1, 0, 3, 8}};
    const std::vector<Status> outcomes = RunOnce(messages, 2, seed, false, &wrong);
    EXPECT_EQ(outcomes[0].code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_EQ(outcomes[1].code(), collops::ERROR_RANK_MISMATCH);
  }
}
