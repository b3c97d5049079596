// The collectives of the shm backend between processes and between threads: random calls with new
// data each time, whose inputs are overwritten right after the return, so that a missing wait gives
// wrong results.
#include <functional>
#include <random>

#include "faults/ways.h"

namespace {

using collops::Communicator;

// Calls of one element to some that take several chunks of every rank's stage.
constexpr int64_t kEach[] = {1, 8, 300, 5000, 40000, 300000};
constexpr uint32_t kCollectives = 7;  // the first ways: no products, and no messages

void CallOnce(ways::Way way, bool in_window, Communicator& comm) {
  const int size = comm.size();
  std::vector<int32_t> plain(static_cast<size_t>(way.x_elements(size)));
  std::vector<int32_t> output(static_cast<size_t>(way.output_elements(size)), -1);
  std::shared_ptr<collops::Window> window;
  int32_t* x = plain.data();
  if (in_window) {
    EXPECT_EQ(comm.AllocateWindow(way.x_elements(size) * 4, &window).message(), "");
    x = static_cast<int32_t*>(window->data());
  }
  way.Fill(comm.rank(), size, x);
  const collops::Status status = way.Call(comm, x, output.data());
  std::fill(x, x + way.x_elements(size), -2);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(way.Wrong(comm.rank(), size, output.data()), 0);
}

std::function<void(int, Communicator&)> RandomCalls(int calls) {
  return [calls](int rank, Communicator& comm) {
    std::mt19937 shared(17);
    std::mt19937 own(static_cast<unsigned>(rank));
    for (int i = 0; i < calls; ++i) {
      ways::Way way = ways::All()[shared() % kCollectives];
      way.each = kEach[shared() % std::size(kEach)];
      way.salt = i;
      if (own() % 16 == 0) usleep(own() % 3000);
      CallOnce(way, own() % 2 == 0, comm);
      if (shared() % 16 == 0) EXPECT_EQ(comm.Barrier().message(), "");
    }
  };
}

}  // namespace

TEST(RandomCallsOfProcessesAndThreads) {
  ranks::Run(1, RandomCalls(50));
  ranks::Run(2, RandomCalls(400));
  ranks::Run(3, RandomCalls(300));
  ranks::Run(4, RandomCalls(200));
  ranks::Run(7, RandomCalls(60));
  ranks::RunThreads(2, RandomCalls(200));
  ranks::RunThreads(4, RandomCalls(100));
}
