// ExchangeV on shm: slices of every length between all pairs, from plain memory and from windows.
#include <algorithm>
#include <cstring>
#include <random>

#include "ranks.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::DType;
using collops::ExchangeVCall;
using collops::Range;
using collops::Status;
using List = std::vector<int64_t>;

constexpr int32_t kPoison = -77;

// What every rank sends to every rank in one round; equal on all ranks.
struct Table {
  std::vector<List> counts;

  Table(int size, unsigned round) {
    std::mt19937 random(round);
    // For a cell, for one chunk, for several, and none.
    const int64_t lengths[] = {0, 1, 7, 500, 4096, 50000, 300000};
    const size_t kinds = round % 3 == 0 ? 4 : 7;
    counts.resize(static_cast<size_t>(size));
    for (List& row : counts) {
      for (int r = 0; r < size; ++r) row.push_back(lengths[random() % kinds]);
    }
  }

  List SentBy(int rank) const { return counts[static_cast<size_t>(rank)]; }
  List ReceivedBy(int rank) const {
    List received;
    for (const List& row : counts) received.push_back(row[static_cast<size_t>(rank)]);
    return received;
  }
};

int32_t Value(int from, unsigned round, int64_t i) {
  return static_cast<int32_t>((i * 31 + from * 1009 + static_cast<int64_t>(round) * 77) % 100003);
}

// Blocks with `gap` between them, in the order of the ranks or in reverse order.
List Displacements(const List& counts, bool reversed, int64_t gap) {
  List displs(counts.size());
  int64_t end = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const size_t r = reversed ? counts.size() - 1 - i : i;
    displs[r] = end;
    end += counts[r] + gap;
  }
  return displs;
}

// One round with its own data. Slices overlap in some rounds, which is allowed for reading.
void Round(int rank, unsigned round, Communicator& comm) {
  const Table table(comm.size(), round);
  const List sent = table.SentBy(rank);
  const List received = table.ReceivedBy(rank);
  List sdispls = Displacements(sent, round % 2 == 1, 0);
  if (round % 5 == 4) std::fill(sdispls.begin(), sdispls.end(), 3);
  const List rdispls = Displacements(received, round % 2 == 0, 2);

  int64_t x_count = 4;
  for (size_t r = 0; r < sent.size(); ++r) x_count = std::max(x_count, sdispls[r] + sent[r]);
  std::vector<int32_t> plain(static_cast<size_t>(x_count));
  int32_t* x = plain.data();
  std::shared_ptr<collops::Window> window;
  if ((round + static_cast<unsigned>(rank)) % 3 == 1) {
    EXPECT_EQ(comm.AllocateWindow(x_count * 4, &window).message(), "");
    x = static_cast<int32_t*>(window->data());
  }
  for (int64_t i = 0; i < x_count; ++i) x[i] = Value(rank, round, i);

  int64_t out_count = 2;
  std::vector<Range> gaps;
  for (size_t r = 0; r < received.size(); ++r) {
    const int64_t end = rdispls[r] + received[r];
    gaps.push_back({end, end + 2});
    out_count = std::max(out_count, end + 2);
  }
  std::vector<int32_t> output(static_cast<size_t>(out_count), kPoison);
  Agreement agreement("AllToAllV");
  agreement.EqualText("dtype", "int32")
      .Pairwise("sendCounts", sent.data(), "recvCounts", received.data(), rank, comm.size());
  ExchangeVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x;
  call.send_counts = sent.data();
  call.sdispls = sdispls.data();
  call.output = output.data();
  call.recv_counts = received.data();
  call.rdispls = rdispls.data();
  call.gaps = gaps.data();
  call.num_gaps = static_cast<int64_t>(gaps.size());
  EXPECT_EQ(comm.ExchangeV(call).message(), "");
  std::memset(x, 0x5a, static_cast<size_t>(x_count) * 4);  // the call has ended

  std::vector<int32_t> expected(output.size(), 0);
  for (int r = 0; r < comm.size(); ++r) {
    const List theirs = table.SentBy(r);
    List from = Displacements(theirs, round % 2 == 1, 0);
    if (round % 5 == 4) std::fill(from.begin(), from.end(), 3);
    const auto peer = static_cast<size_t>(r);
    for (int64_t i = 0; i < received[peer]; ++i) {
      expected[static_cast<size_t>(rdispls[peer] + i)] =
          Value(r, round, from[static_cast<size_t>(rank)] + i);
    }
  }
  EXPECT_TRUE(output == expected);
}

void ManyRounds(int rank, Communicator& comm) {
  for (unsigned round = 0; round < 30; ++round) Round(rank, round, comm);
}

}  // namespace

TEST(EverySliceArrivesOverProcesses) {
  for (const int size : {1, 2, 3, 4, 7}) ranks::Run(size, ManyRounds, check::Patience(60));
}

TEST(EverySliceArrivesOverThreads) {
  ranks::RunThreads(3, ManyRounds);
}

TEST(CountsOfAPairThatDifferAreNamed) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    List sent = {1, 2, 3};
    const List received(3, rank + 1);
    if (rank == 2) sent[0] = 5;
    const List displs(3);
    std::vector<int32_t> x(5);
    std::vector<int32_t> output(9, kPoison);
    const List rdispls = {0, 3, 6};
    Agreement agreement("AllToAllV");
    agreement.Pairwise("sendCounts", sent.data(), "recvCounts", received.data(), rank, 3);
    ExchangeVCall call;
    call.agreement = &agreement;
    call.dtype = DType::kInt32;
    call.x = x.data();
    call.send_counts = sent.data();
    call.sdispls = displs.data();
    call.output = output.data();
    call.recv_counts = received.data();
    call.rdispls = rdispls.data();
    const Status status = comm.ExchangeV(call);
    EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(status.message(), "sendCounts[0] is 5 on rank 2");
    EXPECT_CONTAINS(status.message(), "recvCounts[2] is 1 on rank 0");
    EXPECT_EQ(std::count(output.begin(), output.end(), kPoison), 9);
  });
}
