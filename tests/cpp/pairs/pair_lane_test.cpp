// Matching, refusals, disagreements and losses in the pair lane, on a wire of plain queues.
#include <string>
#include <vector>

#include "pairs/queue_wire.h"

namespace {

using collops::ERROR_ABORTED;
using collops::ERROR_INVALID_PARAM;
using collops::ERROR_PEER_LOST;
using collops::ERROR_RANK_MISMATCH;
using collops::kAnySource;
using pairs::Buffer;
using pairs::DType;
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

TEST(AMessageArrivesWhicheverSideIsFirst) {
  for (const int64_t bytes : kSizes) {
    for (const bool send_first : {true, false}) {
      QueueRanks ranks(2);
      Buffer x(Pattern(bytes, 7));
      Buffer out(bytes);
      TransferHandle sent;
      if (send_first) sent = ranks[0].Post(Send(1, 3, &x));
      ranks.Settle();
      const TransferHandle received = ranks[1].Post(Recv(0, 3, &out));
      ranks.Settle();
      if (!send_first) {
        EXPECT_FALSE(ranks[1].Done(received));
        sent = ranks[0].Post(Send(1, 3, &x));
        ranks.Settle();
      }
      ASSERT_TRUE(ranks[0].Done(sent) && ranks[1].Done(received));
      int source = -5;
      EXPECT_TRUE(ranks[1].Collect(received, &source).ok());
      EXPECT_EQ(source, 0);
      EXPECT_TRUE(out.Holds(Pattern(bytes, 7)));
      EXPECT_FALSE(ranks[1].HasWork());
      EXPECT_TRUE(ranks[0].HasWork() == false);
    }
  }
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

TEST(TagsChooseAndOneTagKeepsItsOrder) {
  QueueRanks ranks(2);
  std::deque<Buffer> x, out;
  std::vector<TransferHandle> handles;
  const std::vector<int32_t> sent_tags = {5, 6, 5, 7, 6, 5, 6, 7, 5};
  const std::vector<int32_t> recv_tags = {7, 5, 5, 6, 7, 6, 6, 5, 5};
  for (size_t i = 0; i < sent_tags.size(); ++i) {
    const int64_t bytes = sent_tags[i] == 6 ? 40 : 6;
    x.emplace_back(Pattern(bytes, 100U + static_cast<uint32_t>(i)));
    ranks[0].Post(Send(1, sent_tags[i], &x.back()));
  }
  for (const int32_t tag : recv_tags) {
    out.emplace_back(tag == 6 ? 40 : 6);
    handles.push_back(ranks[1].Post(Recv(0, tag, &out.back())));
    ranks.Settle();
  }
  std::map<int32_t, size_t> next;
  for (size_t i = 0; i < recv_tags.size(); ++i) {
    size_t& at = next[recv_tags[i]];
    while (sent_tags[at] != recv_tags[i]) ++at;
    ASSERT_TRUE(ranks[1].Done(handles[i]));
    EXPECT_TRUE(out[i].Holds(Pattern(out[i].bytes(), 100U + static_cast<uint32_t>(at))));
    ++at;
  }
  EXPECT_FALSE(ranks[0].HasWork());
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

TEST(NamedAndAnySourceAreServedInTheOrderOfPosting) {
  QueueRanks ranks(3);
  Buffer x1(Pattern(20, 1)), x2(Pattern(20, 2)), x3(Pattern(20, 3)), a(20), b(20), c(20);
  ranks[0].Post(Recv(1, 0, &a));
  ranks[0].Post(Recv(kAnySource, 0, &b));
  ranks[0].Post(Recv(1, 0, &c));
  for (Buffer* x : {&x1, &x2, &x3}) ranks[1].Post(Send(0, 0, x));
  ranks.Settle();
  EXPECT_TRUE(a.Holds(Pattern(20, 1)) && b.Holds(Pattern(20, 2)) && c.Holds(Pattern(20, 3)));
  EXPECT_FALSE(ranks[0].HasWork() || ranks[1].HasWork());
}

TEST(TwoRanksThatBothSendFirstAreServedByOneList) {
  QueueRanks ranks(2);
  Buffer x0(Pattern(100, 1)), x1(Pattern(100, 2)), out0(100), out1(100);
  ranks[0].Post(Send(1, 0, &x0));
  ranks[1].Post(Send(0, 0, &x1));
  ranks.Settle();
  EXPECT_TRUE(ranks[0].HasWork() && ranks[1].HasWork());
  EXPECT_CONTAINS(ranks[0].Describe(), "Send of 100 uint8 to rank 1 (pid 101) (tag 0)");
  EXPECT_CONTAINS(ranks[0].Describe(), "rank 1 (pid 101) sends to rank 0 (pid 100) with tag 0");
  EXPECT_CONTAINS(ranks[0].Describe(), "exchange");
  ranks[0].Post(Recv(1, 0, &out0));
  ranks[1].Post(Recv(0, 0, &out1));
  ranks.Settle();
  EXPECT_FALSE(ranks[0].HasWork() || ranks[1].HasWork());
  EXPECT_TRUE(out0.Holds(Pattern(100, 2)) && out1.Holds(Pattern(100, 1)));
}

TEST(ARankMaySendToItself) {
  QueueRanks ranks(2);
  for (const int64_t bytes : kSizes) Exchange(&ranks, 1, 1, 2, bytes, 5);
}

TEST(ARefusedSendLeavesTheLaneGood) {
  QueueRanks ranks(2);
  Buffer out(12), nothing(0);
  const TransferHandle received = ranks[1].Post(Recv(0, 8, &out));
  ranks[0].Refuse(Send(1, 8, &nothing), Error(ERROR_INVALID_PARAM, "Send: x is read-only"));
  ranks.Settle();
  ASSERT_TRUE(ranks[1].Done(received));
  const Status status = ranks[1].Collect(received);
  EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
  EXPECT_EQ(status.message(),
            "Recv: rank 0 (pid 100) refused message 1 (tag 8): Send: x is read-only");
  EXPECT_TRUE(out.Untouched());
  EXPECT_FALSE(ranks[0].HasWork() || ranks[1].HasWork());
  for (const int64_t bytes : kSizes) Exchange(&ranks, 0, 1, 8, bytes, 6);
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

void ExpectMismatch(Buffer* x, DType sent, Buffer* out, DType expected, const std::string& text) {
  QueueRanks ranks(3);
  Buffer elsewhere(30);
  const TransferHandle third = ranks[0].Post(Recv(2, 1, &elsewhere));
  const TransferHandle a = ranks[0].Post(Send(1, 4, x, sent));
  const TransferHandle b = ranks[1].Post(Recv(0, 4, out, expected));
  ranks.Settle();
  ASSERT_TRUE(ranks[0].Done(a) && ranks[1].Done(b) && ranks[0].Done(third));
  for (const Status& status : {ranks[0].Collect(a), ranks[1].Collect(b), ranks[0].Collect(third)}) {
    EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
    EXPECT_EQ(status.message(), "Send and Recv: message 1 (tag 4): " + text +
                                    ": both must state the same dtype and number of elements");
  }
  EXPECT_TRUE(out->Untouched());
  EXPECT_FALSE(ranks[0].failure().ok() || ranks[1].failure().ok());
  const TransferHandle later = ranks[1].Post(Recv(2, 0, out));
  ASSERT_TRUE(ranks[1].Done(later));
  EXPECT_EQ(ranks[1].Collect(later).code(), ERROR_RANK_MISMATCH);
  EXPECT_FALSE(ranks[1].HasWork());
}

TEST(AMismatchEndsBothLanesWithOneText) {
  for (const int64_t bytes : {int64_t{8}, int64_t{80}}) {
    Buffer x(Pattern(bytes, 1)), out(bytes), shorter(bytes - 4);
    const std::string all = std::to_string(bytes / 4);
    ExpectMismatch(
        &x, DType::kFloat32, &out, DType::kInt32,
        "rank 0 (pid 100) sends " + all + " float32, rank 1 (pid 101) receives " + all + " int32");
    ExpectMismatch(&x, DType::kInt32, &shorter, DType::kInt32,
                   "rank 0 (pid 100) sends " + all + " int32, rank 1 (pid 101) receives " +
                       std::to_string(bytes / 4 - 1) + " int32");
  }
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

TEST(EndGivesEveryOpenTransferItsStatus) {
  QueueRanks ranks(2);
  Buffer x(Pattern(4, 1)), out(4);
  const TransferHandle a = ranks[0].Post(Send(1, 0, &x));
  const TransferHandle b = ranks[0].Post(Recv(1, 0, &out));
  ranks[0].Refuse(Recv(1, 1, &out), Error(ERROR_INVALID_PARAM, "no"));
  ranks[0].End(Error(ERROR_ABORTED, "closed"));
  ASSERT_TRUE(ranks[0].Done(a) && ranks[0].Done(b));
  EXPECT_EQ(ranks[0].Collect(a).message(), "closed");
  EXPECT_EQ(ranks[0].Collect(b).message(), "closed");
  EXPECT_FALSE(ranks[0].HasWork());
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

TEST(ManyOutstandingMessagesArriveInOrder) {
  QueueRanks ranks(2);
  std::deque<Buffer> x, out;
  for (uint32_t i = 0; i < 200; ++i) {
    x.emplace_back(Pattern(kSizes[i % kSizes.size()], i));
    ranks[0].Post(Send(1, static_cast<int32_t>(i % 3), &x.back()));
  }
  ranks.Settle();
  for (uint32_t tag : {2U, 0U, 1U}) {
    for (uint32_t i = tag; i < 200; i += 3) {
      out.emplace_back(x[i].bytes());
      ranks[1].Post(Recv(0, static_cast<int32_t>(tag), &out.back()));
    }
  }
  ranks.Settle();
  EXPECT_FALSE(ranks[0].HasWork() || ranks[1].HasWork());
  size_t at = 0;
  for (uint32_t tag : {2U, 0U, 1U}) {
    for (uint32_t i = tag; i < 200; i += 3, ++at) {
      EXPECT_TRUE(out[at].Holds(Pattern(x[i].bytes(), i)));
    }
  }
}

TEST(MessagesOfThePlainLevelNameItsMethods) {
  QueueRanks ranks(2);
  Buffer x(8), out(12), nothing(0);
  Transfer receive = Recv(0, 8, &out);
  receive.method = "exchange";
  const TransferHandle refused = ranks[1].Post(receive);
  ranks[0].Refuse(Send(1, 8, &nothing), Error(ERROR_INVALID_PARAM, "exchange: a bad tensor"));
  ranks.Settle();
  EXPECT_EQ(ranks[1].Collect(refused).message(),
            "exchange: rank 0 (pid 100) refused message 1 (tag 8): exchange: a bad tensor");
  Transfer send = Send(1, 0, &x);
  send.method = "exchange";
  const TransferHandle sent = ranks[0].Post(send);
  EXPECT_CONTAINS(ranks[0].Describe(), "send of 8 uint8 to rank 1 (pid 101) (tag 0)");
  receive = Recv(0, 0, &out);
  receive.method = "recv";
  const TransferHandle received = ranks[1].Post(receive);
  ranks.Settle();
  EXPECT_CONTAINS(ranks[0].Collect(sent).message(), "send and recv: message 2 (tag 0): rank 0 ");
  EXPECT_CONTAINS(ranks[1].Collect(received).message(),
                  "send and recv: message 2 (tag 0): rank 0 ");
}

}  // namespace
