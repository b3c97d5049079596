// First contact when other processes connect: their messages must not end it.
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>

#include "control/first_contact/guests.h"

namespace {

using collops::Status;
using collops::control::Frame;
using collops::control::MessageKind;
using collops::control::UniqueFd;
using guests::HelloOf;
using guests::MeetBeside;
using guests::MeetingName;
using guests::SendWithDescriptors;
using guests::VerdictOf;
using Clock = std::chrono::steady_clock;

}  // namespace

TEST(WhatIsNoHelloIsDropped) {
  struct Message {
    Frame frame;
    size_t descriptors;
  };
  std::vector<Message> messages = {
      {HelloOf(), 0}, {HelloOf(), 5}, {HelloOf(), 16}, {VerdictOf(), 0}};
  for (const int rank : {2, -1, 1 << 30}) messages.push_back({HelloOf(rank), 1});
  for (const MessageKind kind : {MessageKind::kPeer, MessageKind::kWelcome, MessageKind::kProgress,
                                 static_cast<MessageKind>(77)}) {
    messages.push_back({collops::control::LocalMessageOf(kind).frame(), 1});
  }
  for (const Message& message : messages) {
    MeetBeside([&](int socket) {
      SendWithDescriptors(socket, message.frame, std::vector<int>(message.descriptors, socket));
    });
  }
}

// After its hello an admitted rank may only send why it leaves.
TEST(ARankThatSaysHelloTwiceIsLost) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens, spoken;
  const pid_t leader = ranks::Start([&] {
    const auto communicator = ranks::Make(job, 0, 3, check::Patience(5));
    listens.Set();
    spoken.Wait();
    const Status status = communicator->Connect();
    EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
    EXPECT_CONTAINS(status.message(), "rank 1 (pid " + std::to_string(getppid()));
  });
  listens.Wait();
  const UniqueFd stranger = collops::control::ConnectTo(MeetingName(job));
  for (const int rank : {1, 2}) {
    SendWithDescriptors(stranger.get(), HelloOf(rank, 3), {stranger.get()});
  }
  spoken.Set();
  EXPECT_EQ(ranks::Wait(leader).code, 0);
}

// A code that is no error's would turn the end of first contact into a success.
TEST(AVerdictWithAnInvalidCodeIsAnError) {
  for (const int code : {0, -7, 4711}) {
    const collops::JobIdentity job = ranks::FreshJob();
    const ranks::Event listens, spoken;
    const pid_t leader = ranks::Start([&] {
      const auto communicator = ranks::Make(job, 0, 3, check::Patience(5));
      listens.Set();
      spoken.Wait();
      const Status status = communicator->Connect();
      EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
      EXPECT_CONTAINS(status.message(), "a stranger's word");
    });
    listens.Wait();
    const UniqueFd stranger = collops::control::ConnectTo(MeetingName(job));
    SendWithDescriptors(stranger.get(), HelloOf(1, 3), {stranger.get()});
    SendWithDescriptors(stranger.get(), VerdictOf(code), {});
    spoken.Set();
    EXPECT_EQ(ranks::Wait(leader).code, 0);
  }
}

namespace {

// Starts a process of another user that binds the name of `job`, and listens if `listening`. It
// lives until `done`.
pid_t StartSquatter(const collops::JobIdentity& job, bool listening, const ranks::Event& bound,
                    const ranks::Event& done) {
  const std::string name = MeetingName(job);  // the name as this user has it
  return ranks::Start([&, name, listening] {
    if (geteuid() == 0) EXPECT_EQ(setuid(guests::kOtherUser), 0);
    const UniqueFd squatter = listening ? collops::control::Listen(name) : [&name] {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      name.copy(address.sun_path + 1, name.size());
      UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
      const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
      return socket;
    }();
    EXPECT_TRUE(squatter.valid());
    bound.Set();
    done.Wait();
  });
}

}  // namespace

TEST(AnotherUserThatOwnsTheSocketsNameIsReportedAtOnce) {
  if (!guests::CanBeAnotherUser()) return;
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event bound, done;
  const pid_t squatter = StartSquatter(job, true, bound, done);
  bound.Wait();
  for (const int rank : {0, 1, 0}) {
    const Clock::time_point start = Clock::now();
    const Status status = ranks::Make(job, rank, 2, check::Patience(20))->Connect();
    EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
    EXPECT_CONTAINS(status.message(), "process " + std::to_string(squatter) + " of another user");
    EXPECT_CONTAINS(status.message(), "uid " + std::to_string(guests::kOtherUser));
    EXPECT_TRUE(std::chrono::duration<double>(Clock::now() - start).count() <
                check::Patience(10.0));
  }
  done.Set();
  EXPECT_EQ(ranks::Wait(squatter).code, 0);
}

// Nobody can find its owner, but the error is that the name is taken, not "rank 0 is missing".
TEST(ATakenNameWithoutAListenerIsReportedSoon) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event bound, done;
  const pid_t squatter = StartSquatter(job, false, bound, done);
  bound.Wait();
  for (const int rank : {0, 1}) {
    const Clock::time_point start = Clock::now();
    const Status status =
        ranks::Make(job, rank, 2, rank == 0 ? check::Patience(20) : 0.2)->Connect();
    EXPECT_CONTAINS(status.message(),
                    "process on this host has taken the socket of this job and comm_domain");
    EXPECT_TRUE(std::chrono::duration<double>(Clock::now() - start).count() < check::Patience(5.0));
  }
  done.Set();
  EXPECT_EQ(ranks::Wait(squatter).code, 0);
}
