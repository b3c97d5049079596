// The texts of errors in the pair lane, in the words of the level that was called.
#include "pairs/queue_wire.h"

namespace {

using collops::ERROR_INVALID_PARAM;
using pairs::Buffer;
using pairs::Error;
using pairs::QueueRanks;
using pairs::Recv;
using pairs::Send;
using pairs::Transfer;
using pairs::TransferHandle;

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
