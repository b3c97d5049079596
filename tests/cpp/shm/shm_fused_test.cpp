// Fused calls on shm: every part is read in call after call.
#include <cstring>

#include "shm/adding_call.h"

namespace {

using adding::Adding;
using adding::Fill;
using collops::Communicator;

// Plain memory and windows; matrices for the call record, for one part and for several. The memory
// is overwritten as soon as the call has returned.
void ManyRounds(int rank, Communicator& comm) {
  struct Size {
    int64_t rows, row_bytes;
  };
  const Size sizes[] = {{5, 40}, {300, 4000}, {30, 100000}, {0, 64}, {1, 3000000}};
  const int64_t units[] = {24, 1, 7, 2048};
  for (int round = 0; round < 40; ++round) {
    const Size& size = sizes[round % 5];
    const int64_t count = size.rows * size.row_bytes / 4;
    Adding call;
    call.rows = size.rows;
    call.row_bytes = size.row_bytes;
    call.row_unit = units[round % 4];
    std::vector<int32_t> plain(static_cast<size_t>(count) + 1);
    int32_t* x = plain.data();
    std::shared_ptr<collops::Window> window;
    if (round % 3 == 0) {
      EXPECT_EQ(comm.AllocateWindow(count * 4, &window).message(), "");
      x = static_cast<int32_t*>(window->data());
    }
    int64_t expected = 0;
    std::vector<int32_t> scratch(static_cast<size_t>(count) + 1);
    for (int r = 0; r < comm.size(); ++r) expected += Fill(r, round, count, scratch.data());
    Fill(rank, round, count, x);
    EXPECT_EQ(call.Run(&comm, x).message(), "");
    std::memset(x, 0x5a, static_cast<size_t>(count) * 4);
    EXPECT_EQ(call.sum, expected);
    EXPECT_TRUE(call.whole_units);
    EXPECT_EQ(call.tile_sum, comm.size() * 1000 + comm.size() * (comm.size() - 1) / 2);
  }
}

}  // namespace

TEST(EveryPartIsReadOverProcesses) {
  for (const int size : {1, 2, 3, 5}) ranks::Run(size, ManyRounds);
}

TEST(EveryPartIsReadOverThreads) {
  ranks::RunThreads(3, ManyRounds);
}

// Signals hold the low 40 bits of a call's number.
TEST(CallsContinueAfterTheirNumberExceedsASignalsBits) {
  const collops::JobIdentity job = ranks::FreshJob();
  collops::CommunicatorSpec spec;
  spec.backend = "shm";
  spec.rank_size = 3;
  spec.timeout_s = check::Patience(30);
  std::vector<pid_t> pids;
  for (; spec.rank < spec.rank_size; ++spec.rank) {
    pids.push_back(ranks::Start([&] {
      constexpr uint64_t kStepsBefore = (uint64_t{1} << 40) - 20;
      collops::shm::ShmCommunicator comm(std::make_shared<collops::control::Control>(
          spec, job, collops::shm::SegmentLayout::Bytes(spec.rank_size), kStepsBefore));
      ManyRounds(spec.rank, comm);
    }));
  }
  for (const pid_t pid : pids) {
    const ranks::Ended ended = ranks::Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}
