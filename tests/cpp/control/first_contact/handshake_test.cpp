// Who is let in: ranks of this job with its key, and no one else. Strangers cost little.
#include "collops/comm/control/first_contact/handshake.h"

#include "collops/comm/control/first_contact/job_listener.h"
#include "collops/comm/control/first_contact/messages.h"
#include "control/first_contact/loopback.h"

namespace {

using namespace loopback;
using collops::Concat;
using collops::ERROR_RANK_MISMATCH;
using collops::ERROR_UNSUPPORTED;
using collops::control::Claim;
using collops::control::FieldReader;
using collops::control::FieldWriter;
using collops::control::HandshakeClient;
using collops::control::JobListener;
using collops::control::JobSecret;
using collops::control::kProtocolVersion;
using collops::control::Proof;
using collops::control::Proven;

constexpr uint64_t kMagic = 0x636f6c6c6f707331;
const JobSecret kSecret = {"job 7", "a key that nobody guesses"};
const Claim kClaim = {"dp", "ranks", 3, 8};

std::unique_ptr<JobListener> OpenListener(const JobSecret& secret, const char* host = "127.0.0.1") {
  auto listener = std::make_unique<JobListener>(secret);
  EXPECT_EQ(listener->Open(At(host)).message(), "");
  return listener;
}

// Runs both sides until the one who connects knows.
Proof Meet(JobListener* listener, HandshakeClient* application, std::vector<Proven>* proven) {
  Proof proof = Proof::kUnderWay;
  Await([&] {
    static_cast<void>(listener->Next(proven));
    return (proof = application->Step()) != Proof::kUnderWay;
  });
  return proof;
}

// That a sound rank is still let in.
void ExpectOpen(JobListener* listener) {
  std::vector<Proven> proven;
  HandshakeClient application(Connection(listener->address()), &kSecret, kClaim);
  EXPECT_TRUE(Meet(listener, &application, &proven) == Proof::kGiven);
  EXPECT_EQ(application.refusal().message(), "");
  ASSERT_EQ(proven.size(), 1);
}

void ExpectRefused(const JobSecret& secret, bool may_retry, const std::string& text,
                   const std::string& text_inside) {
  const auto listener = OpenListener(kSecret);
  std::vector<Proven> proven;
  HandshakeClient application(Connection(listener->address()), &secret, kClaim);
  EXPECT_TRUE(Meet(listener.get(), &application, &proven) == Proof::kRefused);
  EXPECT_TRUE(proven.empty());
  EXPECT_EQ(application.refusal().code(), ERROR_RANK_MISMATCH);
  EXPECT_EQ(application.refusal().message(),
            listener->address().Text() + " refused this rank: " + text);
  EXPECT_EQ(application.may_retry(), may_retry);
  EXPECT_CONTAINS(listener->last_refusal().message(), text_inside);
  ExpectOpen(listener.get());
}

FieldWriter Head(uint64_t version, uint64_t kind) {
  FieldWriter fields;
  fields.Number(kMagic).Number(version).Number(kind);
  return fields;
}

// What `connection` gets next.
Frame Hear(JobListener* listener, Connection* connection) {
  std::vector<Proven> proven;
  Frame frame;
  Await([&] {
    static_cast<void>(listener->Next(&proven));
    return connection->Receive(&frame) || !connection->alive();
  });
  EXPECT_TRUE(proven.empty());
  return frame;
}

}  // namespace

TEST(RanksOfOneJobMeet) {
  for (const JobSecret& secret : {kSecret, JobSecret{"only the id", ""}}) {
    for (const char* host : {"127.0.0.1", "127.0.0.2", "::1"}) {
      const auto listener = OpenListener(secret, host);
      std::vector<Proven> proven;
      HandshakeClient application(Connection(listener->address()), &secret, kClaim);
      ASSERT_TRUE(Meet(listener.get(), &application, &proven) == Proof::kGiven);
      ASSERT_EQ(proven.size(), 1);
      EXPECT_EQ(proven[0].claim.domain, "dp");
      EXPECT_EQ(proven[0].claim.purpose, "ranks");
      EXPECT_EQ(proven[0].claim.rank, 3);
      EXPECT_EQ(proven[0].claim.rank_size, 8);
      // The connection goes on, now with long frames.
      const Frame frame = FrameOf(std::string(60000, 'x'));
      EXPECT_TRUE(application.connection().Send(frame) && proven[0].connection.Send(frame));
      Frame got;
      Await([&] {
        application.connection().Flush();
        return proven[0].connection.Receive(&got);
      });
      EXPECT_TRUE(got == frame);
      Await([&] {
        proven[0].connection.Flush();
        return application.connection().Receive(&got);
      });
      EXPECT_TRUE(got == frame);
    }
  }
}

TEST(AWrongKeyAndAnotherJobAreRefusedAndTold) {
  ExpectRefused({"job 7", "another key"}, false,
                "it has another key: set COLLOPS_JOB_KEY to the same text in all ranks",
                "has another key");
  ExpectRefused({"job 7", ""}, false,
                "it has another key: set COLLOPS_JOB_KEY to the same text in all ranks",
                "has another key");
  ExpectRefused({"job 8", "a key that nobody guesses"}, true,
                "it belongs to another job than the one that listens here",
                "belongs to another job");
}

// Without a key: the table's content names the job.
TEST(AnotherRankTableIsToldFromAnotherJob) {
  const auto listener = OpenListener({"rank-table/1234", ""});
  const auto refusal = [&](const JobSecret& secret) {
    std::vector<Proven> proven;
    HandshakeClient application(Connection(listener->address()), &secret, kClaim);
    EXPECT_TRUE(Meet(listener.get(), &application, &proven) == Proof::kRefused);
    return application.refusal().message();
  };
  EXPECT_CONTAINS(refusal({"rank-table/5678", ""}),
                  "refused this rank: it has another rank table than the ranks that listen here: "
                  "copy one table to all hosts");
  EXPECT_CONTAINS(refusal({"slurm/7/0", ""}), "it belongs to another job");
  const std::string who =
      Concat("127.0.0.1, which says it is rank 3 on ", collops::control::HostName(), " and ");
  ASSERT_EQ(listener->turned_away().size(), 2);
  EXPECT_EQ(listener->turned_away()[0], who + "has another rank table");
  EXPECT_EQ(listener->turned_away()[1], who + "belongs to another job");
}

// Whatever it sends, and however often it comes: one line without its letters, four in all.
TEST(WhatAStrangerSaysIsNotRepeated) {
  const auto listener = OpenListener(kSecret);
  const auto say = [&](const FieldWriter& hello) {
    Connection stranger(listener->address());
    EXPECT_TRUE(stranger.Send(hello.frame()));
    static_cast<void>(Hear(listener.get(), &stranger));
  };
  const auto hello = [](int rank, const std::string& host) {
    FieldWriter fields = Head(kProtocolVersion, 1);
    fields.Text(std::string(32, 'j')).Number(0).Text(std::string(32, 'n')).Text("dp").Text("find");
    return fields.Number(static_cast<uint64_t>(rank)).Number(8).Text(host);
  };
  say(hello(1, "node\n\x1b[31m7"));
  say(hello(1, "node\n\x1b[31m7"));
  ASSERT_EQ(listener->turned_away().size(), 1);
  EXPECT_EQ(listener->turned_away()[0],
            "127.0.0.1, which says it is rank 1 on node??[31m7 and belongs to another job");
  say(hello(1, std::string(65, 'x')));
  EXPECT_EQ(listener->turned_away()[1], "127.0.0.1, which is not a rank of collops");
  for (int rank = 2; rank < 8; ++rank) say(hello(rank, ""));
  EXPECT_EQ(listener->turned_away().size(), JobListener::kMostTurnedAway);
  EXPECT_EQ(listener->turned_away().back(),
            "127.0.0.1, which says it is rank 7 and belongs to another job");
  // One that only looks whether the port is there.
  Stranger(listener->address()).Reset();
  std::vector<Proven> proven;
  for (int i = 0; i < 10; ++i) static_cast<void>(listener->Next(&proven));
  EXPECT_CONTAINS(listener->turned_away().back(), "rank 7");
}

TEST(AnotherVersionIsToldToBoth) {
  const auto listener = OpenListener(kSecret);
  Connection newer(listener->address());
  ASSERT_TRUE(newer.Send(Head(kProtocolVersion + 1, 1).Text("whatever follows").frame()));
  const Frame frame = Hear(listener.get(), &newer);
  FieldReader refusal(frame);
  EXPECT_EQ(refusal.Number(), kMagic);
  EXPECT_EQ(refusal.Number(), kProtocolVersion);
  EXPECT_EQ(refusal.Number(), 5);
  EXPECT_TRUE(refusal.Number() == ERROR_UNSUPPORTED);
  EXPECT_CONTAINS(refusal.Text(512), "install one version of collops on all hosts");
  EXPECT_CONTAINS(listener->last_refusal().message(), "speaks version 5 of the protocol");
  ExpectOpen(listener.get());

  Listener other_version = ListenAt("127.0.0.1");
  HandshakeClient application(Connection(other_version.address()), &kSecret, kClaim);
  collops::control::UniqueFd socket;
  Await([&] { return (socket = other_version.Accept()).valid(); });
  Connection other(std::move(socket));
  EXPECT_TRUE(other.Send(Head(9, 2).Text(std::string(32, 'n')).frame()));
  Await([&] { return application.Step() == Proof::kRefused; });
  EXPECT_CONTAINS(application.refusal().message(), "speaks version 9 of the protocol");
  EXPECT_FALSE(application.may_retry());
}

// Everything that the proof covers, changed on the way by one who does not know the key.
TEST(AProofCannotBeUsedForAnythingElse) {
  const auto listener = OpenListener(kSecret);
  for (int changed = 0; changed < 5; ++changed) {
    // A sound rank connects to the one in the middle, who speaks to the listener in its name.
    Listener middle = ListenAt("127.0.0.1");
    HandshakeClient rank(Connection(middle.address()), &kSecret, kClaim);
    collops::control::UniqueFd socket;
    Await([&] { return (socket = middle.Accept()).valid(); });
    Connection to_rank(std::move(socket));
    Frame frame;
    Await([&] {
      static_cast<void>(rank.Step());
      return to_rank.Receive(&frame);
    });
    FieldReader hello(frame);
    for (int i = 0; i < 3; ++i) hello.Number();
    const std::string job = hello.Text(32);
    FieldWriter forged = Head(kProtocolVersion, 1);
    forged.Text(job).Number(hello.Number());
    forged.Text(hello.Text(32)).Text(changed == 0 ? "other" : "dp");
    forged.Text(changed == 1 ? "hosts" : "ranks").Number(changed == 2 ? 4 : 3);
    forged.Number(changed == 3 ? 9 : 8);
    forged.Text(changed == 4 ? "elsewhere" : collops::control::HostName());
    Connection to_door(listener->address());
    EXPECT_TRUE(to_door.Send(forged.frame()));
    EXPECT_TRUE(to_rank.Send(Hear(listener.get(), &to_door)));
    Await([&] {
      static_cast<void>(rank.Step());
      return to_rank.Receive(&frame);
    });
    EXPECT_TRUE(to_door.Send(frame));
    frame = Hear(listener.get(), &to_door);
    FieldReader verdict(frame);
    for (int i = 0; i < 2; ++i) verdict.Number();
    EXPECT_EQ(verdict.Number(), 5);
  }
  ExpectOpen(listener.get());
}

// A listener that sends a joiner's own proof back to it.
TEST(AProofCannotBeReflected) {
  Listener middle = ListenAt("127.0.0.1");
  HandshakeClient rank(Connection(middle.address()), &kSecret, kClaim);
  collops::control::UniqueFd socket;
  Await([&] { return (socket = middle.Accept()).valid(); });
  Connection to_rank(std::move(socket));
  Frame frame;
  const auto hear = [&] {
    static_cast<void>(rank.Step());
    return to_rank.Receive(&frame);
  };
  Await(hear);
  EXPECT_TRUE(to_rank.Send(Head(kProtocolVersion, 2).Text(std::string(32, 'n')).frame()));
  Await(hear);
  FieldReader proof(frame);
  for (int i = 0; i < 3; ++i) proof.Number();
  EXPECT_TRUE(to_rank.Send(Head(kProtocolVersion, 4).Text(proof.Text(32)).frame()));
  Await([&] { return rank.Step() == Proof::kRefused; });
  EXPECT_CONTAINS(rank.refusal().message(), "does not know the key of this job");
  EXPECT_FALSE(rank.may_retry());
}

TEST(GarbageIsDropped) {
  const auto listener = OpenListener(kSecret);
  const std::string garbage[] = {
      std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
      std::string(100000, '\xff'),
      std::string(3, '\0'),
      std::string("\0\0\0\0", 4),
      std::string("\0\0\0\x08garbage!", 12),
      std::string("\0\0\x07\xff", 4) + std::string(2047, 'x'),
      std::string("\0\0\0\x18"
                  "collops1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1",
                  28),
      std::string("\0\0\0\x18"
                  "collops1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\3",
                  28),
  };
  std::vector<Proven> proven;
  for (const std::string& bytes : garbage) {
    Stranger stranger(listener->address());
    stranger.Say(bytes);
    if (bytes.size() == 3) continue;  // part of a length: silent until it is dropped
    std::string said;
    Await([&] {
      EXPECT_FALSE(listener->Next(&proven));
      return stranger.HungUp(&said);
    });
    ExpectOpen(listener.get());
  }
}

// The one who connects finds a stranger.
TEST(AListenerThatIsNoRankIsToldApart) {
  const std::string answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                 std::string("\0\0\0\x08garbage!", 12)};
  for (const std::string& answer : answers) {
    Listener listener = ListenAt("127.0.0.1");
    HandshakeClient application(Connection(listener.address()), &kSecret, kClaim);
    collops::control::UniqueFd socket;
    Await([&] { return (socket = listener.Accept()).valid(); });
    EXPECT_EQ(send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(answer.size()));
    Await([&] { return application.Step() == Proof::kRefused; });
    EXPECT_FALSE(application.refusal().message().empty());
    EXPECT_TRUE(application.may_retry());
  }
}

// As many as may be under way, all silent, keep their places until others queue behind them.
TEST(SilentStrangersMakeRoomOldestFirst) {
  const auto listener = OpenListener(kSecret);
  std::vector<Proven> proven;
  std::vector<std::unique_ptr<Stranger>> strangers;
  const auto come = [&] {
    strangers.push_back(std::make_unique<Stranger>(listener->address()));
    EXPECT_FALSE(listener->Next(&proven));
  };
  while (!listener->full()) come();
  ASSERT_EQ(strangers.size(), JobListener::kMostUnproven);
  std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * JobListener::kSilenceS));
  EXPECT_FALSE(listener->Next(&proven));
  for (const auto& stranger : strangers) EXPECT_FALSE(stranger->HungUp());
  for (int i = 0; i < 3; ++i) come();
  for (size_t i = 0; i < strangers.size(); ++i) EXPECT_EQ(strangers[i]->HungUp(), i < 3);
  std::vector<pollfd> polled;
  listener->AddPolled(&polled);
  EXPECT_EQ(polled.size(), JobListener::kMostUnproven);
  ExpectOpen(listener.get());
  // All are dropped in time, and not before.
  const auto start = std::chrono::steady_clock::now();
  Await([&] {
    static_cast<void>(listener->Next(&proven));
    return strangers.back()->HungUp();
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_TRUE(took.count() > JobListener::kPatienceS / 2 &&
              took.count() < JobListener::kPatienceS + check::Patience(JobListener::kPatienceS));
  polled.clear();
  listener->AddPolled(&polled);
  EXPECT_EQ(polled.size(), 1);
}

// More ranks than may be under way at once come before the first is answered: none is dropped.
TEST(ManyRanksQueue) {
  constexpr size_t kRanks = 4 * JobListener::kMostUnproven;
  const auto listener = OpenListener(kSecret);
  std::vector<std::unique_ptr<HandshakeClient>> ranks;
  for (size_t i = 0; i < kRanks; ++i) {
    ranks.push_back(
        std::make_unique<HandshakeClient>(Connection(listener->address()), &kSecret, kClaim));
    EXPECT_EQ(ranks.back()->Step(), Proof::kUnderWay);
  }
  std::vector<Proven> proven;
  std::vector<bool> given(kRanks, false);
  Await([&] {
    while (listener->Next(&proven)) continue;
    for (size_t i = 0; i < kRanks; ++i) given[i] = given[i] || ranks[i]->Step() == Proof::kGiven;
    return std::all_of(given.begin(), given.end(), [](bool has) { return has; });
  });
  EXPECT_EQ(proven.size(), kRanks);
}

// Neither the key nor, without one, the job's id crosses the wire.
TEST(TheSecretIsNotSent) {
  const JobSecret secret = {"the id of the job", ""};
  Listener listener = ListenAt("127.0.0.1");
  HandshakeClient application(Connection(listener.address()), &secret, kClaim);
  collops::control::UniqueFd socket;
  Await([&] { return (socket = listener.Accept()).valid(); });
  Connection connection(std::move(socket));
  Frame frame;
  for (int i = 0; i < 2; ++i) {
    Await([&] {
      static_cast<void>(application.Step());
      return connection.Receive(&frame);
    });
    EXPECT_EQ(TextOf(frame).find(secret.job_id), std::string::npos);
    static_cast<void>(
        connection.Send(Head(kProtocolVersion, 2).Text(std::string(32, 'n')).frame()));
  }
}
