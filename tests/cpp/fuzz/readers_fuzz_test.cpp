// Damaged texts and frames: each is read as what it says, or refused; none is read past its end,
// which the sanitizers see, because every input lies in memory of exactly its size.
#include <sys/socket.h>

#include <string>
#include <vector>

#include "collops/comm/control/first_contact/handshake.h"
#include "collops/comm/control/first_contact/local_meeting.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/control/first_contact/port_messages.h"
#include "collops/comm/control/hosts/watcher.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/operators/params.h"
#include "control/first_contact/loopback.h"
#include "fuzz/mutation.h"

namespace {

using namespace collops;
using control::Challenge;
using control::Claim;
using control::FieldReader;
using control::FieldWriter;
using control::Frame;
using control::HandshakeClient;
using control::Hello;
using control::JobSecret;
using control::MessageKind;
using control::PortMessage;
using control::PortNews;
using control::Proof;
using control::Row;
using control::StatusKind;
using control::StatusUpdate;
using fuzz::Drive;
using loopback::FrameOf;
using loopback::TextOf;

// The struct that a text says, if it says one, is written and read again as the same.
template <typename Param>
bool ReadParam(const std::string& text) {
  Param param;
  const Status status = FromJson(text, &param);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), ERROR_INVALID_PARAM);
    return false;
  }
  Param again;
  EXPECT_EQ(FromJson(ToJson(param), &again).message(), "");
  EXPECT_EQ(ToJson(again), ToJson(param));
  return true;
}

// What a whole frame says, written again: the frame's own bytes, unless it was not valid.
std::string SaidAgain(const std::string& bytes) {
  PortMessage said;
  if (!PortMessage::Read(FrameOf(bytes), &said)) return "";
  EXPECT_TRUE(said.port >= 0 && said.port <= 65535 && said.pid >= 0);
  EXPECT_TRUE(said.address.size() <= Row::kMostAddressBytes);
  return TextOf(said.frame());
}

std::string NewsAgain(const std::string& bytes) {
  PortNews news;
  if (!PortNews::Read(FrameOf(bytes), &news)) return "";
  EXPECT_TRUE(news.rank >= -1 && news.rank < control::kMaxGroupRanks);
  EXPECT_TRUE(news.turned_away.size() <= PortNews::kMostTexts);
  const std::string again = TextOf(news.frame());
  for (const std::string& text : news.turned_away) {
    EXPECT_TRUE(text.size() <= PortNews::kMostTextBytes && text.find('\n') == std::string::npos);
  }
  return again;
}

std::string RowAgain(const std::string& bytes) {
  const Frame frame = FrameOf(bytes);
  FieldReader fields(frame);
  const Row row = Row::Read(&fields);
  if (!fields.Done()) return "";
  EXPECT_TRUE(row.rank >= 0 && row.rank < control::kMaxGroupRanks);
  FieldWriter again;
  row.Write(&again);
  return again.text();
}

// Whether it is valid; the first byte of a file of the corpus names its reader.
bool ReadFrame(const std::string& input) {
  if (input.empty()) return false;
  const std::string bytes = input.substr(1);
  std::string again;
  switch (input[0]) {
    case 's':
      again = SaidAgain(bytes);
      // A reason's code is brought into range, and the text of no reason is dropped.
      EXPECT_TRUE(again.size() <= bytes.size());
      return !again.empty();
    case 'n':
      again = NewsAgain(bytes);
      // Letters that no message may have become others.
      EXPECT_TRUE(again.empty() || again.size() == bytes.size());
      return !again.empty();
    case 'r':
      again = RowAgain(bytes);
      EXPECT_TRUE(again.empty() || again == bytes);
      return !again.empty();
    default:
      return false;
  }
}

std::vector<std::string> NewsCorpus() {
  constexpr int kRanks = 3;
  static const std::vector<std::byte> bytes(
      static_cast<size_t>(Agreement::EncodedBytes(kRanks) + control::kShareBytes), std::byte{7});
  StatusUpdate head{StatusKind::kHead, 2, 41, 0x1234, 0x5678};
  head.agreement = bytes.data();
  StatusUpdate shared = head;
  shared.shared = bytes.data();
  StatusUpdate failed{StatusKind::kFailed, 1, 9, 0, 0, ERROR_TIMEOUT};
  failed.text = "call 1 timed out after 0.5 s";
  std::vector<std::string> corpus;
  for (const StatusUpdate& news : {StatusUpdate{}, head, shared, failed}) {
    corpus.push_back(TextOf(Encode(news, kRanks)));
  }
  return corpus;
}

bool ReadNews(const std::string& input) {
  constexpr int kRanks = 3;
  const Frame frame = FrameOf(input);
  StatusUpdate news;
  if (!Decode(frame, kRanks, &news)) return false;
  EXPECT_TRUE(news.rank >= 0 && news.rank < kRanks);
  EXPECT_EQ(TextOf(Encode(news, kRanks)).size(), input.size());
  return true;
}

std::vector<std::string> MeetingCorpus() {
  const Hello hello = {1, 2, 77, {}, {}, {1, 0}};
  return {
      TextOf(hello.frame()),
      TextOf(control::LocalVerdictFrame(Error(ERROR_TIMEOUT, "a reason"), 2)),
      control::LocalMessageOf(MessageKind::kProgress).Text("rank 1 of 2").text(),
      control::LocalMessageOf(MessageKind::kPeer).Number(1).Number(77).text(),
      control::LocalMessageOf(MessageKind::kWelcome).Number(4096).text(),
  };
}

// Whether it is a message of first contact on a host.
bool ReadMeeting(const Frame& frame) {
  FieldReader fields(frame);
  const MessageKind kind = control::ReadLocalKind(&fields);
  Hello hello;
  Status verdict;
  if (kind == MessageKind::kHello) {
    if (!Hello::Read(frame, &hello)) return false;
    EXPECT_TRUE(hello.rank >= 0 && hello.rank < hello.rank_size);
  }
  if (control::ReadLocalVerdict(frame, &verdict)) EXPECT_FALSE(verdict.ok());
  return kind != MessageKind::kNone && kind != MessageKind::kOtherVersion;
}

}  // namespace

TEST(JsonOfTheStructs) {
  const auto corpus = fuzz::Corpus("params");
  Drive("json", corpus, 300, [](const std::string& text) {
    bool read = ReadParam<AllGatherVParam>(text);
    read |= ReadParam<ReduceScatterVParam>(text);
    read |= ReadParam<LinearParallelParam>(text);
    read |= ReadParam<AllToAllVParam>(text);
    read |= ReadParam<SendParam>(text);
    return read;
  });
}

TEST(RankTables) {
  Drive("rank tables", fuzz::Corpus("rank_tables"), 200, [](const std::string& text) {
    RankTable table;
    const Status status = ParseRankTable(text, "a table", &table);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), ERROR_INVALID_PARAM);
      return false;
    }
    for (const RankTable::Rank& rank : table.ranks) {
      EXPECT_TRUE(rank.server >= 0 && static_cast<size_t>(rank.server) < table.servers.size());
    }
    return true;
  });
}

TEST(FramesOfFirstContactBetweenHosts) {
  Drive("frames", fuzz::Corpus("frames"), 3000, ReadFrame);
}

TEST(NewsBetweenHosts) {
  Drive("news", NewsCorpus(), 2000, ReadNews);
}

TEST(MessagesOfFirstContactOnAHost) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  control::Connection reader(control::UniqueFd(ends[1]), "a process");
  reader.LimitFrames(control::kMostLocalFrameBytes);
  Drive("meeting", MeetingCorpus(), 1000, [&](const std::string& input) {
    if (input.empty()) return false;  // an empty packet is the end of a connection
    EXPECT_EQ(send(ends[0], input.data(), input.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(input.size()));
    static_cast<void>(control::VerdictInMailbox(ends[1]));  // leaves it there
    Frame frame;
    std::vector<control::UniqueFd> fds;
    EXPECT_TRUE(reader.Receive(&frame, &fds));
    return ReadMeeting(FrameOf(TextOf(frame)));  // in memory of its size
  });
  close(ends[0]);
}

// Both sides of the proof, each with an other end that sends damaged frames: neither gives in.
TEST(TheProofBetweenHosts) {
  const JobSecret secret = {"job 7", "a key"};
  const Claim claim = {"dp", "ranks", 1, 2};
  fuzz::Random random(7);
  for (int round = fuzz::Rounds(40); round > 0; --round) {
    // Who connects gets its own hello, damaged; who listens gets that, then a damaged proof.
    loopback::Ends other;
    HandshakeClient stranger(std::move(*other.first), &secret, claim);
    ASSERT_TRUE(stranger.Step() == Proof::kUnderWay);
    Frame hello;
    loopback::Await([&] { return other.second->Receive(&hello); });
    const std::string damaged = fuzz::Damaged({TextOf(hello)}, 0, &random);
    static_cast<void>(other.second->Send(FrameOf(damaged)));
    Proof proof = Proof::kUnderWay;
    loopback::Await([&] { return (proof = stranger.Step()) != Proof::kUnderWay; });
    EXPECT_TRUE(proof == Proof::kRefused);
    loopback::Ends third;
    Challenge door(std::move(*third.second), &secret);
    static_cast<void>(third.first->Send(FrameOf(damaged)));
    static_cast<void>(third.first->Send(FrameOf(fuzz::Damaged({damaged}, 0, &random))));
    third.first->CloseWriting();
    loopback::Await([&] { return (proof = door.Step()) != Proof::kUnderWay; });
    EXPECT_TRUE(proof == Proof::kRefused);
  }
}
