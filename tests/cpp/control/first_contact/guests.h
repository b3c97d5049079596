// First contact of two ranks while another process is connected to rank 0.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/local_meeting.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "ranks.h"

namespace guests {

using collops::control::Frame;
using collops::control::MessageKind;
using collops::control::UniqueFd;

constexpr uid_t kOtherUser = 65534;

inline bool CanBeAnotherUser() {
  if (geteuid() == 0) return true;
  std::printf("skipped: becoming another user needs root\n");
  return false;
}

inline std::string MeetingName(const collops::JobIdentity& job) {
  collops::CommunicatorSpec spec;
  spec.backend = "shm";
  return collops::control::SocketName(spec, job);
}

inline Frame HelloOf(int rank = 1, int rank_size = 2) {
  collops::control::Hello hello;
  hello.rank = rank;
  hello.rank_size = rank_size;
  hello.pid = getpid();
  return hello.frame();
}

inline Frame VerdictOf(int code = collops::ERROR_RT_FAIL) {
  auto fields = collops::control::LocalMessageOf(MessageKind::kVerdict);
  return fields.Number(0).Number(static_cast<uint64_t>(code)).Text("a stranger's word").frame();
}

// Sent without the library, which sends at most 4 descriptors.
inline void SendWithDescriptors(int socket, const Frame& message, const std::vector<int>& fds) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  EXPECT_EQ(sendmsg(socket, &header, MSG_NOSIGNAL), static_cast<ssize_t>(message.size()));
}

// Another process runs `speak` on a connection to rank 0 before rank 1 comes, and stays. The two
// ranks must meet.
inline void MeetBeside(const std::function<void(int socket)>& speak) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens, spoken;
  const pid_t leader = ranks::Start([&] {
    const auto communicator = ranks::Make(job, 0, 2, check::Patience(5));
    listens.Set();
    spoken.Wait();
    EXPECT_EQ(communicator->Connect().message(), "");
    EXPECT_EQ(communicator->Barrier().message(), "");
  });
  listens.Wait();
  const UniqueFd stranger = collops::control::ConnectTo(MeetingName(job));
  EXPECT_TRUE(stranger.valid());
  speak(stranger.get());
  const pid_t member = ranks::Start([&] {
    const auto communicator = ranks::Make(job, 1, 2, check::Patience(5));
    spoken.Set();
    EXPECT_EQ(communicator->Connect().message(), "");
    EXPECT_EQ(communicator->Barrier().message(), "");
  });
  EXPECT_EQ(ranks::Wait(leader).code, 0);
  EXPECT_EQ(ranks::Wait(member).code, 0);
}

}  // namespace guests
