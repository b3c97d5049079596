// A rank of another version of the library: all ranks get ERROR_RANK_MISMATCH, at once.
#include <string>

#include "control/first_contact/guests.h"
#include "faults/doom.h"

namespace {

using collops::Status;
using collops::control::FieldWriter;
using collops::control::kLocalVersion;
using collops::control::UniqueFd;

constexpr int64_t kSoonNs = int64_t{3000000000};

// As another version would send it: behind the first number nothing is as here.
std::string OfAnotherVersion(size_t bytes) {
  std::string text = FieldWriter().Number(kLocalVersion + 1).text();
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
  for (const size_t bytes : {size_t{8}, size_t{100}, size_t{3000}}) {
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
    const std::string hello = OfAnotherVersion(bytes);
    EXPECT_EQ(send(other.get(), hello.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    spoken.Set(2);
    for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
    collops::control::Frame answer(1000);
    EXPECT_TRUE(recv(other.get(), answer.data(), answer.size(), MSG_DONTWAIT) > 8);
    EXPECT_EQ(collops::control::FieldReader(answer).Number(), kLocalVersion);
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
  const std::string answer = OfAnotherVersion(64);
  EXPECT_EQ(send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 64);
  EXPECT_EQ(ranks::Wait(pid).code, 0);
}
