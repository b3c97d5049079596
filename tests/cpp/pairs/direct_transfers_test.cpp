// Lists that go straight to the wire, handed over to the lane at every point: the messages arrive
// as if they had been posted. In random orders of steps, which a seed repeats.
#include <random>
#include <string>
#include <vector>

#include "pairs/queue_wire.h"

namespace {

using pairs::Buffer;
using pairs::DType;
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

// How often transfers were in which state when they were handed over.
struct Seen {
  int completed = 0;  // lists that were over before that
  int handed_over = 0;
  int stopped = 0;  // of these, because something was not as usual
  int refused = 0;  // lists that BeginDirect() did not take
};

// A rank's list, first begun directly, then with the lane.
class Member {
 public:
  Member(QueueRanks* ranks, int rank, const std::vector<Message>& messages, bool receives_first)
      : ranks_(ranks), rank_(rank) {
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
        list_.insert(receives_first ? list_.begin() + receives_++ : list_.end(), receive);
        received_.push_back({&buffers_.back(), Pattern(message.bytes, seed)});
      }
    }
    handles_.resize(list_.size());
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void Begin(Seen* seen) {
    direct_ = lane().BeginDirect(list_.data(), static_cast<int>(list_.size()));
    if (direct_) return;
    ++seen->refused;
    for (size_t i = 0; i < list_.size(); ++i) handles_[i] = lane().Post(list_[i]);
    in_lane_ = true;
  }
  bool Poll() {
    if (in_lane_) return lane().Poll();
    return lane().direct().open() && !lane().direct().stopped() && lane().direct().Poll();
  }
  // Gives up the direct way if something is open.
  void HandOver(Seen* seen) {
    if (in_lane_ || done_) return;
    if (!lane().direct().open() && !lane().direct().stopped()) {
      done_ = true;
      ++seen->completed;
      return;
    }
    ++seen->handed_over;
    seen->stopped += lane().direct().stopped() ? 1 : 0;
    lane().HandOverDirect(handles_.data());
    in_lane_ = true;
  }
  bool stopped() { return !in_lane_ && !done_ && lane().direct().stopped(); }

  // The first error of its transfers; fails the test if one is still open.
  Status Outcome() {
    Status first;
    for (size_t i = 0; in_lane_ && i < handles_.size(); ++i) {
      if (!EXPECT_TRUE(lane().Done(handles_[i]))) return first;
      const Status status = lane().Collect(handles_[i]);
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
  collops::PairLane& lane() { return (*ranks_)[rank_]; }

  QueueRanks* ranks_;
  int rank_;
  std::deque<Buffer> buffers_;
  std::vector<Transfer> list_;
  std::vector<TransferHandle> handles_;
  std::vector<std::pair<Buffer*, std::vector<std::byte>>> received_;
  int receives_ = 0;
  bool direct_ = false;
  bool in_lane_ = false;
  bool done_ = false;
};

// Runs the messages once: each step delivers an item or polls a rank, and at its own step a rank
// hands its list over. The outcome of every rank.
std::vector<Status> RunOnce(const std::vector<Message>& messages, int size, uint32_t seed,
                            bool piecemeal, Seen* seen, int64_t* wrong) {
  std::mt19937 random(seed);
  QueueRanks ranks(size);
  ranks.net.direct = true;
  ranks.net.piecemeal = piecemeal;
  std::deque<Member> members;
  const auto sides = static_cast<unsigned>(size);
  std::vector<unsigned> hand_over_at;
  for (int rank = 0; rank < size; ++rank) {
    members.emplace_back(&ranks, rank, messages, random() % 2 == 0);
    hand_over_at.push_back(random() % (30U * sides * sides / 2));
  }
  for (Member& member : members) member.Begin(seen);
  for (unsigned step = 0; step < 30 * sides * sides; ++step) {
    const auto one = [&] { return static_cast<int>(random() % sides); };
    if (random() % 2 == 0) ranks.net.Deliver(one(), one(), static_cast<int>(random() % 3));
    const auto rank = static_cast<size_t>(one());
    members[rank].Poll();
    if (members[rank].stopped() || step >= hand_over_at[rank]) members[rank].HandOver(seen);
  }
  for (bool moved = true; moved;) {
    moved = ranks.net.DeliverAll();
    for (Member& member : members) {
      moved = member.Poll() || moved;
      member.HandOver(seen);
    }
  }
  std::vector<Status> outcomes;
  for (Member& member : members) {
    outcomes.push_back(member.Outcome());
    *wrong += member.NumWrong();
  }
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_FALSE(ranks[rank].failure().ok() && ranks[rank].HasWork());
  }
  return outcomes;
}

// All messages arrive, whenever the lists are handed over. How the lists went.
Seen ExpectArrivals(const std::vector<Message>& messages, int size, bool piecemeal = false) {
  Seen seen;
  int64_t wrong = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    for (const Status& status : RunOnce(messages, size, seed, piecemeal, &seen, &wrong)) {
      EXPECT_EQ(status.message(), "");
    }
  }
  EXPECT_EQ(wrong, 0);
  return seen;
}

}  // namespace

TEST(TwoRanksExchangeSmallMessages) {
  const Seen seen = ExpectArrivals({{0, 1, 3, 8}, {1, 0, 3, 5}}, 2);
  EXPECT_TRUE(seen.completed > 500 && seen.handed_over > 500);
  EXPECT_EQ(seen.stopped + seen.refused, 0);
}

// A body byte by byte: transfers are handed over in the middle.
TEST(BodiesThatAreTakenInPieces) {
  const Seen seen = ExpectArrivals({{0, 1, 3, 8}, {1, 0, 3, 7}, {0, 1, 3, 6}}, 2, true);
  EXPECT_TRUE(seen.completed > 100 && seen.handed_over > 500);
}

// A body that does not fit into the envelope has to be asked for, which only the lane does.
TEST(LongBodiesStopTheList) {
  const Seen seen = ExpectArrivals({{0, 1, 3, 100}, {1, 0, 3, 40}}, 2);
  EXPECT_EQ(seen.completed, 0);
  EXPECT_TRUE(seen.stopped > 500);
}

TEST(ReceivesInAnotherOrderThanTheSendsStopTheList) {
  const Seen seen = ExpectArrivals({{0, 1, 3, 4}, {0, 1, 4, 5}, {1, 0, 3, 6}}, 2);
  EXPECT_TRUE(seen.completed > 100);
  // Of one length, so that only the tags differ.
  Seen crossed;
  int64_t wrong = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    QueueRanks ranks(2);
    ranks.net.direct = true;
    Buffer a(Pattern(5, 1)), b(Pattern(5, 2)), first(5), second(5);
    const Transfer sends[] = {pairs::Send(1, 3, &a), pairs::Send(1, 4, &b)};
    const Transfer receives[] = {pairs::Recv(0, 4, &second), pairs::Recv(0, 3, &first)};
    TransferHandle sent[2], received[2];
    ASSERT_TRUE(ranks[0].BeginDirect(sends, 2) && ranks[1].BeginDirect(receives, 2));
    for (unsigned step = 0; step < seed % 12; ++step) {
      ranks.net.Deliver(0, 1, 0);
      if (!ranks[1].direct().stopped()) ranks[1].direct().Poll();
    }
    crossed.stopped += ranks[1].direct().stopped() ? 1 : 0;
    ranks[0].HandOverDirect(sent);
    ranks[1].HandOverDirect(received);
    ranks.Settle();
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(ranks[0].Done(sent[i]) && ranks[0].Collect(sent[i]).ok());
      EXPECT_TRUE(ranks[1].Done(received[i]) && ranks[1].Collect(received[i]).ok());
    }
    wrong += first.Holds(Pattern(5, 1)) && second.Holds(Pattern(5, 2)) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(crossed.stopped > 500);
}

// Room for two envelopes and two verdicts per pair.
TEST(MoreMessagesThanThereIsRoomFor) {
  std::vector<Message> messages;
  for (int64_t i = 0; i < 7; ++i) messages.push_back({0, 1, 3, i});
  for (int64_t i = 0; i < 5; ++i) messages.push_back({1, 0, 3, 8 - i});
  const Seen seen = ExpectArrivals(messages, 2);
  EXPECT_TRUE(seen.stopped > 500);
}

TEST(ThreeRanksInARing) {
  const Seen seen = ExpectArrivals({{0, 1, 1, 8}, {1, 2, 1, 7}, {2, 0, 1, 6}, {0, 2, 1, 3}}, 3);
  EXPECT_TRUE(seen.completed > 300 && seen.handed_over > 500);
}

// The receiver expects another type: both lists end with the error, at whatever point.
TEST(ADisagreementEndsBothLists) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    Seen seen;
    int64_t wrong = 0;
    const std::vector<Message> messages = {{0, 1, 3, 8, DType::kInt32}, {1, 0, 3, 8}};
    const std::vector<Status> outcomes = RunOnce(messages, 2, seed, false, &seen, &wrong);
    EXPECT_EQ(outcomes[0].code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_EQ(outcomes[1].code(), collops::ERROR_RANK_MISMATCH);
  }
}
