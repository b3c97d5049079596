// Processes that are no ranks: they connect and say nothing or half a message, or belong to another
// user, who can neither take part nor reach the memory. The job goes on.
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <iterator>

#include "collops/comm/control/first_contact/local_socket.h"
#include "control/first_contact/guests.h"

namespace {

using collops::control::Frame;
using collops::control::UniqueFd;
using guests::CanBeAnotherUser;
using guests::kOtherUser;

void BecomeAnotherUser() {
  EXPECT_EQ(setgid(kOtherUser), 0);
  EXPECT_EQ(setuid(kOtherUser), 0);
}

// The descriptors of a process that are shared memory of collops.
std::vector<std::string> SharedMemoryOf(pid_t pid) {
  std::vector<std::string> paths;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.rfind("/memfd:collops", 0) == 0) paths.push_back(entry.path());
  }
  return paths;
}

bool CanOpen(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC)).valid();
}

bool CanReadMemory(pid_t pid, void* address) {
  char byte = 0;
  const iovec here{&byte, 1};
  const iovec there{address, 1};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == 1;
}

bool CanTakeDescriptor(pid_t pid, int fd) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  constexpr long kPidfdGetfd = 438;
  return UniqueFd(static_cast<int>(syscall(kPidfdGetfd, process.get(), fd, 0))).valid();
}

}  // namespace

TEST(AStrangerThatSaysNothingIsDropped) {
  guests::MeetBeside([](int) {});
}

TEST(AStrangerThatHangsUpIsDropped) {
  guests::MeetBeside([](int socket) { EXPECT_EQ(shutdown(socket, SHUT_RDWR), 0); });
}

TEST(AMessageOfAnyOtherLengthIsDropped) {
  const Frame hello = guests::HelloOf();
  std::string bytes(reinterpret_cast<const char*>(hello.data()), hello.size());
  bytes.resize(4 * hello.size());
  for (const size_t length :
       {size_t{1}, size_t{4}, hello.size() / 2, hello.size() - 1, bytes.size()}) {
    // What is longer would be a hello, without its descriptors.
    guests::MeetBeside([&](int socket) {
      EXPECT_EQ(send(socket, bytes.data(), length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
    });
  }
}

TEST(ManyStrangersAtOnceAreDropped) {
  std::vector<UniqueFd> strangers;
  guests::MeetBeside([&](int socket) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    EXPECT_EQ(getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
    for (int i = 0; i < 60; ++i) {
      strangers.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      EXPECT_EQ(connect(strangers.back().get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    }
  });
}

// A rank waits for its group as long as its time-out, and meanwhile keeps only so many of those who
// connect to it and say nothing.
TEST(SilentStrangersAreDroppedOldestFirst) {
  constexpr size_t kStrangers = 400;
  constexpr int kMostKept = 300;
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens;
  const pid_t leader = ranks::Start([&] {
    const auto communicator = ranks::Make(job, 0, 2);
    listens.Set();
    EXPECT_EQ(communicator->Connect().message(), "");
    EXPECT_EQ(communicator->Barrier().message(), "");
  });
  listens.Wait();
  const std::string name = guests::MeetingName(job);
  std::vector<UniqueFd> strangers;
  while (strangers.size() < kStrangers) {
    UniqueFd stranger = collops::control::ConnectTo(name);
    if (stranger.valid()) strangers.push_back(std::move(stranger));
    if (!stranger.valid()) usleep(1000);  // more than the socket takes at once
  }
  const auto is_dropped = [](const UniqueFd& stranger, int wait_ms) {
    pollfd polled{stranger.get(), POLLIN, 0};
    return poll(&polled, 1, wait_ms) == 1;
  };
  // Those that came before what it keeps.
  constexpr size_t kDropped = kStrangers - kMostKept;
  for (size_t i = 0; i < kDropped; ++i) EXPECT_TRUE(is_dropped(strangers[i], 5000));
  EXPECT_FALSE(is_dropped(strangers.back(), 100));
  const std::filesystem::directory_iterator descriptors("/proc/" + std::to_string(leader) + "/fd");
  EXPECT_TRUE(std::distance(begin(descriptors), end(descriptors)) < kMostKept);
  const pid_t member = ranks::Start([&] {
    const auto communicator = ranks::Make(job, 1, 2);
    EXPECT_EQ(communicator->Connect().message(), "");
    EXPECT_EQ(communicator->Barrier().message(), "");
  });
  EXPECT_EQ(ranks::Wait(leader).code, 0);
  EXPECT_EQ(ranks::Wait(member).code, 0);
}

// The hello of another user is a good one; if it were taken, rank 1 would be claimed twice.
TEST(AnotherUserCannotTakePart) {
  if (!CanBeAnotherUser()) return;
  const ranks::Event said, done;
  pid_t other = 0;
  guests::MeetBeside([&](int socket) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    EXPECT_EQ(getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
    other = ranks::Start([&] {
      BecomeAnotherUser();
      const UniqueFd guest(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      EXPECT_EQ(connect(guest.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
      guests::SendWithDescriptors(guest.get(), guests::HelloOf(), {guest.get()});
      said.Set();
      done.Wait();
    });
    said.Wait();
  });
  done.Set();
  EXPECT_EQ(ranks::Wait(other).code, 0);
}

TEST(AnotherUserCannotReachTheMemory) {
  if (!CanBeAnotherUser()) return;
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event met, done;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 2; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      const auto comm = ranks::Make(job, rank, 2);
      std::shared_ptr<collops::Window> window;
      EXPECT_EQ(comm->AllocateWindow(100000, &window).message(), "");
      EXPECT_EQ(comm->Barrier().message(), "");
      met.Set();
      done.Wait();
    }));
  }
  met.Wait(2);
  int byte = 0;
  for (const pid_t pid : pids) {
    const std::vector<std::string> memory = SharedMemoryOf(pid);
    EXPECT_TRUE(!memory.empty());
    // What root can do, so that the other's failures say something.
    EXPECT_TRUE(CanOpen(memory.front()));
    EXPECT_TRUE(CanReadMemory(pid, &byte));
    const pid_t other = ranks::Start([&] {
      BecomeAnotherUser();
      for (const std::string& path : memory) {
        EXPECT_FALSE(CanOpen(path));
        EXPECT_FALSE(CanTakeDescriptor(pid, std::stoi(path.substr(path.rfind('/') + 1))));
      }
      EXPECT_FALSE(CanReadMemory(pid, &byte));
      EXPECT_FALSE(CanOpen("/proc/" + std::to_string(pid) + "/mem"));
    });
    EXPECT_EQ(ranks::Wait(other).code, 0);
  }
  done.Set(2);
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}
