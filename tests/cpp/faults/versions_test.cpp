// A rank of another version of the library: all ranks get ERROR_RANK_MISMATCH, at once.
#include <string>

#include "control/bootstrap/guests.h"
#include "faults/doom.h"

namespace {

using collops::Status;
using collops::control::MeetingMessage;
using collops::control::MessageType;
using collops::control::UniqueFd;

constexpr int64_t kSoonNs = int64_t{3000000000};

// As another version would send it: behind the first two words nothing is as here.
std::string OfAnotherVersion(MessageType type, size_t bytes) {
  MeetingMessage message = guests::Message(type);
  message.version = MeetingMessage::kVersion + 1;
  std::string text(reinterpret_cast<const char*>(&message), sizeof(message));
  text.replace(8, std::string::npos, sizeof(message) - 8, '\x7f');
  text.resize(bytes, '\x7f');
  return text;
}

void ExpectMismatch(const Status& status, int64_t begun_ns) {
  EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
  EXPECT_CONTAINS(status.message(), "different versions of collops");
  EXPECT_TRUE(doom::NowNs() - begun_ns < kSoonNs);
}

}  // namespace

// Rank 2 is the test itself, which also gets an answer.
TEST(ARankOfAnotherVersionIsToldToAll) {
  for (const size_t bytes : {size_t{8}, size_t{100}, 2 * sizeof(MeetingMessage)}) {
    const collops::JobIdentity job = ranks::FreshJob();
    const ranks::Event listens, spoken;
    std::vector<pid_t> pids;
    for (const int rank : {0, 1}) {
      pids.push_back(ranks::Start([&, rank] {
        if (rank > 0) spoken.Wait();
        const auto comm = ranks::Make(job, rank, 3, check::Patience(20));
        if (rank == 0) listens.Set();
        if (rank == 0) spoken.Wait();
        const int64_t begun_ns = doom::NowNs();
        ExpectMismatch(comm->Connect(), begun_ns);
      }));
    }
    listens.Wait();
    const UniqueFd other = collops::control::ConnectTo(guests::MeetingName(job));
    const std::string hello = OfAnotherVersion(MessageType::kHello, bytes);
    EXPECT_EQ(send(other.get(), hello.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    spoken.Set(2);
    for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
    MeetingMessage answer;
    EXPECT_TRUE(recv(other.get(), &answer, sizeof(answer), MSG_DONTWAIT) > 8);
    EXPECT_EQ(answer.magic, MeetingMessage::kMagic);
    EXPECT_EQ(answer.version, MeetingMessage::kVersion);
  }
}

TEST(RankZeroOfAnotherVersionIsNoticed) {
  const collops::JobIdentity job = ranks::FreshJob();
  const UniqueFd listener = collops::control::Listen(guests::MeetingName(job));
  EXPECT_TRUE(listener.valid());
  const pid_t pid = ranks::Start([&] {
    const auto comm = ranks::Make(job, 1, 2, check::Patience(20));
    const int64_t begun_ns = doom::NowNs();
    ExpectMismatch(comm->Connect(), begun_ns);
  });
  UniqueFd client;
  for (int i = 0; i < 10000 && !client.valid(); ++i) {
    client = collops::control::Accept(listener);
    usleep(1000);
  }
  const std::string answer = OfAnotherVersion(MessageType::kProgress, 64);
  EXPECT_EQ(send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 64);
  EXPECT_EQ(ranks::Wait(pid).code, 0);
}
