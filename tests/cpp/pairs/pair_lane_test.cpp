// Matching, refusals, disagreements and losses in the pair lane, on a wire of plain queues.
#include <string>
#include <vector>

#include "pairs/queue_wire.h"

namespace {

using collops::ERROR_ABORTED;
using collops::ERROR_INVALID_PARAM;
using collops::ERROR_PEER_LOST;
using collops::kAnySource;
using pairs::Buffer;
using pairs::Error;
using pairs::PairLane;
using pairs::Pattern;
using pairs::QueueRanks;
using pairs::Recv;
using pairs::Send;
using pairs::Status;
using pairs::Transfer;
using pairs::TransferHandle;

// Small bodies travel with the envelope, 100 bytes in 7 chunks.
const std::vector<int64_t> kSizes = {0, 1, 8, 9, 100};

// A message from `from` to `to` that must arrive.
void Exchange(QueueRanks* ranks, int from, int to, int32_t tag, int64_t bytes, uint32_t seed) {
  Buffer x(Pattern(bytes, seed));
  Buffer out(bytes);
  const TransferHandle sent = (*ranks)[from].Post(Send(to, tag, &x));
  const TransferHandle received = (*ranks)[to].Post(Recv(from, tag, &out));
  ranks->Settle();
  ASSERT_TRUE((*ranks)[from].Done(sent));
  ASSERT_TRUE((*ranks)[to].Done(received));
  EXPECT_TRUE((*ranks)[from].Collect(sent).ok());
  EXPECT_TRUE((*ranks)[to].Collect(received).ok());
  EXPECT_TRUE(out.Holds(Pattern(bytes, seed)));
}

TEST(ASendIsDoneOnlyWhenItsReceiverHasTakenIt) {
  QueueRanks ranks(2);
  Buffer x(Pattern(4, 1));
  const TransferHandle sent = ranks[0].Post(Send(1, 0, &x));
  ranks.Settle();
  EXPECT_FALSE(ranks[0].Done(sent));
  EXPECT_TRUE(ranks[0].HasWork());
  EXPECT_FALSE(ranks[0].Poll());
}

TEST(AnySourceTakesTheMessageThatWasReadFirst) {
  QueueRanks ranks(3);
  Buffer from1(Pattern(5, 1)), from2(Pattern(5, 2)), first(5), second(5), tagged(5);
  // Only the head of rank 2 has arrived at the first poll.
  ranks[2].Post(Send(0, 4, &from2));
  ranks[2].Poll();
  ranks.net.DeliverAll();
  const TransferHandle other = ranks[0].Post(Recv(kAnySource, 9, &tagged));
  ranks[0].Poll();
  ranks[1].Post(Send(0, 4, &from1));
  ranks[1].Poll();
  ranks.net.DeliverAll();
  ranks[0].Poll();
  const TransferHandle a = ranks[0].Post(Recv(kAnySource, 4, &first));
  const TransferHandle b = ranks[0].Post(Recv(kAnySource, 4, &second));
  ranks.Settle();
  int source = -1;
  ASSERT_TRUE(ranks[0].Done(a) && ranks[0].Done(b) && !ranks[0].Done(other));
  EXPECT_TRUE(ranks[0].Collect(a, &source).ok());
  EXPECT_EQ(source, 2);
  EXPECT_TRUE(ranks[0].Collect(b, &source).ok());
  EXPECT_EQ(source, 1);
  EXPECT_TRUE(first.Holds(Pattern(5, 2)) && second.Holds(Pattern(5, 1)));
}

TEST(ARefusedRecvLeavesTheLaneGood) {
  for (const int64_t bytes : kSizes) {
    for (const bool refusal_first : {true, false}) {
      QueueRanks ranks(2);
      Buffer x(Pattern(bytes, 3)), other(Pattern(bytes, 4)), out(bytes);
      const Status why = Error(ERROR_INVALID_PARAM, "Recv: out is read-only");
      if (refusal_first) ranks[1].Refuse(Recv(0, 8, &out), why);
      const TransferHandle untouched = ranks[0].Post(Send(1, 7, &other));
      const TransferHandle sent = ranks[0].Post(Send(1, 8, &x));
      ranks.Settle();
      if (!refusal_first) {
        EXPECT_FALSE(ranks[0].Done(sent));
        ranks[1].Refuse(Recv(0, 8, &out), why);
        ranks.Settle();
      }
      ASSERT_TRUE(ranks[0].Done(sent));
      EXPECT_EQ(ranks[0].Collect(sent).message(),
                "Send: rank 1 (pid 101) refused message 2 (tag 8): Recv: out is read-only");
      EXPECT_FALSE(ranks[0].Done(untouched) || ranks[1].HasWork());
      const TransferHandle received = ranks[1].Post(Recv(0, 7, &out));
      ranks.Settle();
      ASSERT_TRUE(ranks[1].Done(received) && ranks[0].Done(untouched));
      EXPECT_TRUE(out.Holds(Pattern(bytes, 4)));
      Exchange(&ranks, 0, 1, 8, bytes, 9);
    }
  }
}

TEST(BothSidesOfAMessageMayRefuse) {
  QueueRanks ranks(2);
  Buffer nothing(0);
  ranks[0].Refuse(Send(1, 8, &nothing), Error(ERROR_INVALID_PARAM, "a"));
  ranks[1].Refuse(Recv(0, 8, &nothing), Error(ERROR_INVALID_PARAM, "b"));
  ranks[1].Refuse(Recv(kAnySource, 8, &nothing), Error(ERROR_INVALID_PARAM, "c"));
  ranks[1].Refuse(Recv(7, 8, &nothing), Error(ERROR_INVALID_PARAM, "no such rank"));
  ranks.Settle();
  EXPECT_FALSE(ranks[0].HasWork() || ranks[1].HasWork());
  Exchange(&ranks, 0, 1, 8, 9, 9);
}

TEST(TypesThatTravelAsBytesAreNamed) {
  QueueRanks ranks(2);
  Buffer x(Pattern(8, 1)), out(8);
  collops::Transfer send = Send(1, 0, &x);
  std::memset(send.type, 'V', sizeof(send.type));  // fills its field, without an end
  send.digest = 77;
  ranks[0].Post(send);
  ranks[1].Post(Recv(0, 0, &out));
  ranks.Settle();
  EXPECT_CONTAINS(ranks[1].failure().message(), "sends 8 VVVVVVVVVVVVVVVVVVVVVVVV, ");
}

TEST(AFailureOfTheGroupEndsWhatIsNotDone) {
  QueueRanks ranks(2, true);
  Buffer x(Pattern(4, 1)), y(Pattern(4, 2)), out(4), late(4);
  const TransferHandle sent = ranks[0].Post(Send(1, 0, &x));
  const TransferHandle never = ranks[0].Post(Send(1, 1, &y));
  const TransferHandle received = ranks[1].Post(Recv(0, 0, &out));
  ranks[0].Poll();
  ranks.net.DeliverAll();
  ranks[1].Poll();
  ranks.net.DeliverAll();
  EXPECT_TRUE(ranks[1].Done(received));
  // The verdict has arrived: the send is complete although the group has failed since.
  ranks.group[1].PublishFailure(Error(ERROR_ABORTED, "gave up"), 1);
  ranks[0].Poll();
  ASSERT_TRUE(ranks[0].Done(sent) && ranks[0].Done(never));
  EXPECT_TRUE(ranks[0].Collect(sent).ok());
  EXPECT_CONTAINS(ranks[0].Collect(never).message(), "gave up");
  // The receiver reads the failure word after the last byte.
  const TransferHandle after = ranks[1].Post(Recv(0, 1, &late));
  ranks[1].Poll();
  ASSERT_TRUE(ranks[1].Done(after));
  EXPECT_EQ(ranks[1].Collect(after).code(), ERROR_ABORTED);
  EXPECT_TRUE(ranks.net.link(0, 1).verdicts.empty() &&
              ranks.net.link(0, 1).flying_verdicts.empty());
}

TEST(MessagesSentBeforeALossArriveFirst) {
  QueueRanks ranks(3);
  Buffer x(Pattern(4, 1)), out(4), none(4);
  ranks[1].Post(Send(0, 0, &x));
  ranks[1].Poll();
  ranks.net.DeliverAll();
  const Status why = Error(ERROR_PEER_LOST, "rank 1 (pid 101) has ended");
  const TransferHandle whole = ranks[0].Post(Recv(1, 0, &out));
  const TransferHandle lost = ranks[0].Post(Recv(1, 0, &none));
  EXPECT_TRUE(ranks[0].WaitsFor(1) && !ranks[0].WaitsFor(2));
  ranks[0].Lose(1, PairLane::Departure::kEnded, why);
  ranks[0].Lose(2, PairLane::Departure::kLeft, Error(ERROR_PEER_LOST, "rank 2 has left"));
  while (ranks[0].Poll()) {
  }
  ASSERT_TRUE(ranks[0].Done(whole) && ranks[0].Done(lost));
  EXPECT_TRUE(ranks[0].Collect(whole).ok() && out.Holds(Pattern(4, 1)));
  EXPECT_EQ(ranks[0].Collect(lost).message(), "Recv: rank 1 (pid 101) has ended");
  EXPECT_FALSE(ranks[0].failure().ok());
}

TEST(ALossEndsOnlyTransfersThatNeedTheRank) {
  QueueRanks ranks(3);
  Buffer x(Pattern(4, 1)), out(4);
  const TransferHandle received = ranks[0].Post(Recv(2, 0, &out));
  ranks[0].Refuse(Recv(1, 1, &out), Error(ERROR_INVALID_PARAM, "no"));
  ranks[0].Lose(1, PairLane::Departure::kEnded, Error(ERROR_PEER_LOST, "rank 1 has ended"));
  while (ranks[0].Poll()) {
  }
  EXPECT_FALSE(ranks[0].Done(received));
  ranks[2].Post(Send(0, 0, &x));
  ranks.Settle();
  EXPECT_TRUE(ranks[0].Done(received) && out.Holds(Pattern(4, 1)));
  // The refusal that no message will match is dropped with the peer.
  EXPECT_FALSE(ranks[0].HasWork());
}

TEST(AReceiveFromAnySourceSurvivesRanksThatLeftButNotOneThatEnded) {
  for (const bool ended : {true, false}) {
    QueueRanks ranks(3);
    Buffer out(4);
    const TransferHandle received = ranks[0].Post(Recv(kAnySource, 0, &out));
    ranks[0].Lose(1, PairLane::Departure::kLeft, Error(ERROR_PEER_LOST, "rank 1 has left"));
    ranks[0].Poll();
    EXPECT_FALSE(ranks[0].Done(received));
    ranks[0].Lose(2, ended ? PairLane::Departure::kEnded : PairLane::Departure::kLeft,
                  Error(ERROR_PEER_LOST, "rank 2 has gone"));
    ranks[0].Poll();
    ASSERT_TRUE(ranks[0].Done(received));
    EXPECT_CONTAINS(ranks[0].Collect(received).message(), "rank 2 has gone");
  }
}

}  // namespace
