// What a peer puts into the mailbox in which window descriptors arrive: wrong numbers, descriptors
// of something else, a window that is freed while it is read. The reader gets an error at most.
#include <fcntl.h>
#include <sys/mman.h>

#include <climits>

#include "collops/comm/control/first_contact/local_socket.h"
#include "faults/doom.h"
#include "faults/ways.h"

namespace {

using collops::Communicator;
using collops::Status;
using doom::Memory;

constexpr int kSize = 3;

// As WindowMail::Mail.
struct Mail {
  int32_t rank;
  uint32_t window_id;
  int64_t bytes;
};

// Rank `from` writes into the mailbox of `to`.
bool Post(Communicator& from, int to, const void* mail, size_t bytes, const std::vector<int>& fds) {
  const int mailbox =
      ControlOf(from).endpoint().group().peers[static_cast<size_t>(to)].mailbox.get();
  return collops::control::Send(mailbox, mail, bytes, fds) == collops::control::SocketResult::kDone;
}

// How long after the start of its call a rank posts its mail. A rank that is late is so for longer.
int& PostAfterMs() {
  static int ms = 50;
  return ms;
}

// x in a window of this rank; `meanwhile` runs in another thread while the call is under way.
Status CallInWindow(const ways::Way& way, Communicator& comm,
                    const std::function<void()>& meanwhile) {
  std::shared_ptr<collops::Window> window;
  COLLOPS_RETURN_IF_ERROR(comm.AllocateWindow(way.x_elements(kSize) * 4, &window));
  auto* const x = static_cast<int32_t*>(window->data());
  way.Fill(comm.rank(), kSize, x);
  Memory output(way.output_elements(kSize) * 4);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(PostAfterMs()));
    meanwhile();
  });
  const Status status = way.Call(comm, x, output.data());
  other.join();
  if (status.ok()) EXPECT_EQ(way.Wrong(comm.rank(), kSize, output.data()), 0);
  return status;
}

void BeLateHere() {
  std::this_thread::sleep_for(std::chrono::milliseconds(8 * PostAfterMs()));
  Memory::Disarm();
}

Status CallPlain(const ways::Way& way, Communicator& comm, doom::Touched touched) {
  Memory x(way.x_elements(kSize) * 4, touched);
  Memory output(way.output_elements(kSize) * 4);
  way.Fill(comm.rank(), kSize, x.data());
  x.Arm();
  const Status status = way.Call(comm, x.data(), output.data());
  if (status.ok()) EXPECT_EQ(way.Wrong(comm.rank(), kSize, output.data()), 0);
  return status;
}

}  // namespace

// Rank 1 reads rank 0's window while it waits for the rest of rank 2's input. In that wait it reads
// the mail that the window is gone, which rank 0 may only send after the call. Where rank 1 is so
// late that it reads the mail before the window, the call ends with an error, on every rank: then
// once more, with more time.
TEST(AWindowThatIsFreedWhileItIsReadStaysUntilTheCallEnds) {
  constexpr int kNotYetReading = 200;
  for (const ways::Way& way : ways::All()) {
    const std::string name = way.name;
    if (name != "chunked scatter" && name != "sum in one step" && name != "fused") continue;
    bool read = false;
    for (PostAfterMs() = 50; !read && PostAfterMs() <= 800; PostAfterMs() *= 2) {
      const collops::JobIdentity job = ranks::FreshJob();
      std::vector<pid_t> pids;
      for (int rank = 0; rank < kSize; ++rank) {
        pids.push_back(ranks::Start([&, rank] {
          const auto comm = ranks::Make(job, rank, kSize);
          EXPECT_EQ(comm->Barrier().message(), "");
          Status status;
          if (rank == 0) {
            status = CallInWindow(way, *comm, [&] {
              const Mail freed{0, 1, 0};  // its first window
              EXPECT_TRUE(Post(*comm, 1, &freed, sizeof(freed), {}));
            });
          } else {
            status = CallPlain(way, *comm, rank == 2 ? BeLateHere : nullptr);
          }
          if (status.ok()) return;
          EXPECT_CONTAINS(status.message(), "in window 1 at 0, which it has not shared");
          if (check::Failures() == 0) _exit(kNotYetReading);
        }));
      }
      read = true;
      for (const pid_t pid : pids) {
        const ranks::Ended end = ranks::Wait(pid);
        EXPECT_TRUE(end.exited);
        EXPECT_TRUE(end.code == 0 || end.code == kNotYetReading);
        read = read && end.code == 0;
      }
    }
    EXPECT_TRUE(read);
  }
  PostAfterMs() = 50;
}

// After each mail rank 0 shares a window in the usual way, or the call ends with an error.
TEST(NoMailOfAPeerDoesHarm) {
  // Plain numbers: a child of fork() keeps these.
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int unsealed = memfd_create("unsealed", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(unsealed, 4096), 0);
  const int shut = memfd_create("shut", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(shut, 4096), 0);
  EXPECT_EQ(fcntl(shut, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  struct Lie {
    Mail mail;
    size_t bytes;
    std::vector<int> fds;
  };
  const size_t whole = sizeof(Mail);
  const std::vector<Lie> lies = {
      {{-1, 1, 4096}, whole, {shut}},
      {{kSize, 1, 4096}, whole, {shut}},
      {{INT_MAX, 1, 4096}, whole, {shut}},
      {{INT_MIN, 1, 4096}, whole, {shut}},
      {{2, 1, 4096}, whole, {shut}},  // in the name of another rank
      {{1, 1, 0}, whole, {}},         // and of the reader
      {{0, 1, 4096}, whole, {}},
      {{0, 1, 4096}, whole, {file}},
      {{0, 1, 4096}, whole, {unsealed}},
      {{0, 1, 4096}, whole, {ends[0]}},
      {{0, 1, 4096}, whole, {shut, shut, shut}},
      {{0, 1, -4096}, whole, {shut}},
      {{0, 1, INT64_MAX}, whole, {shut}},
      {{0, 1, 8192}, whole, {shut}},
      {{0, 1, 4096}, whole, {shut}},  // the id that the next window has
      {{0, UINT_MAX, 4096}, whole, {shut}},
      {{0, 77, 0}, whole, {}},
      {{0, 1, 4096}, 1, {}},
      {{0, 1, 4096}, whole - 1, {shut}},
  };
  const ways::Way& way = ways::All()[1];
  int ended = 0;
  for (size_t i = 0; i < lies.size(); ++i) {
    const collops::JobIdentity job = ranks::FreshJob();
    std::vector<pid_t> pids;
    for (int rank = 0; rank < kSize; ++rank) {
      pids.push_back(ranks::Start([&, rank] {
        const auto comm = ranks::Make(job, rank, kSize);
        EXPECT_EQ(comm->Barrier().message(), "");
        comm->set_timeout_s(0.5);
        if (rank == 0) {
          for (const int to : {1, 2}) {
            static_cast<void>(Post(*comm, to, &lies[i].mail, lies[i].bytes, lies[i].fds));
          }
        }
        Status status;
        for (int call = 0; call < 2 && status.ok(); ++call) {
          status = rank == 0 ? CallInWindow(way, *comm, [] {}) : CallPlain(way, *comm, nullptr);
        }
        if (!status.ok()) {
          EXPECT_TRUE(status.code() == collops::ERROR_PEER_LOST ||
                      status.code() == collops::ERROR_TIMEOUT);
          if (check::Failures() == 0) _exit(200);
        }
      }));
    }
    for (int rank = 0; rank < kSize; ++rank) {
      const ranks::Ended end = ranks::Wait(pids[static_cast<size_t>(rank)]);
      EXPECT_TRUE(end.exited);
      EXPECT_TRUE(end.code == 0 || end.code == 200);
      ended += end.code == 200 ? 1 : 0;
      if (!end.exited) std::printf("  rank %d, lie %zu\n", rank, i);
    }
  }
  std::printf("%zu lies, %d calls ended with an error\n", lies.size(), ended);
  for (const int fd : {ends[0], ends[1], file, unsealed, shut}) close(fd);
}
