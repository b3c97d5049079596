// The collectives of a backend: outputs bit for bit, and nothing else is written.
#pragma once

#include "conformance/ground.h"
#include "conformance/numbers.h"

namespace conformance {

using namespace collops;

constexpr int kRounds = 10;  // every kind of counts, in both orders

inline void GatherOnce(int rank, int round, Communicator& comm) {
  const DType dtypes[] = {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64};
  const DType dtype = dtypes[round % 4];
  const int64_t item = SizeOf(dtype);
  const List counts = Counts(comm.size(), round);
  const int64_t space = round % 3;
  const List displs = Displacements(counts, round >= 5, space);
  // In some rounds the elements between the blocks are no gaps, and must not change.
  const auto gaps = Gaps(counts, displs, round % 2 == 0 ? space : 0);
  Bytes want(static_cast<size_t>((EndOf(counts, displs) + 3) * item), kPoison);
  Bytes output = want;
  Bytes x = Data(rank, round, 0, counts[At(rank)] * item);
  AllGatherVCall call;
  call.x = x.data();
  if (round % 4 == 3) {
    Put(x, displs[At(rank)] * item, &output);
    call.x = output.data() + displs[At(rank)] * item;
  }
  Agreement agreement("AllGatherV");
  agreement.EqualList("recvCounts", counts.data(), comm.size());
  call.agreement = &agreement;
  call.dtype = dtype;
  call.output = output.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  call.gaps = gaps.data();
  call.num_gaps = static_cast<int64_t>(gaps.size());
  EXPECT_EQ(Made(comm, [&] { return comm.AllGatherV(call); }).message(), "");
  std::fill(x.begin(), x.end(), kPoison);  // the call has ended: no peer reads x any more
  for (int r = 0; r < comm.size(); ++r) {
    Put(Data(r, round, 0, counts[At(r)] * item), displs[At(r)] * item, &want);
  }
  PutZeros(gaps, item, &want);
  EXPECT_TRUE(output == want);
}

inline void ReduceOnce(int rank, int round, Communicator& comm) {
  const List counts = Counts(comm.size(), round);
  const bool overlap = round % 4 == 2;
  const bool in_place = round % 4 == 1;
  List displs = Displacements(counts, round >= 5, round % 3);
  if (overlap) std::fill(displs.begin(), displs.end(), 1);
  const int64_t own = counts[At(rank)];
  const int64_t begin = displs[At(rank)];
  const int64_t surplus = in_place ? 0 : 2;
  std::vector<float> x = Terms(rank, round, EndOf(counts, displs) + 1);
  std::vector<float> separate(static_cast<size_t>(own + surplus + 1), -77.0F);
  float* const output = in_place ? x.data() + begin : separate.data();
  Agreement agreement("ReduceScatterV");
  agreement.EqualList("sendCounts", counts.data(), comm.size());
  ReduceScatterVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kFloat32;
  call.op = round % 3 == 0 ? ReduceOp::kMax : ReduceOp::kSum;
  call.x = x.data();
  call.output = output;
  call.output_count = own + surplus;
  call.send_counts = counts.data();
  call.sdispls = displs.data();
  EXPECT_EQ(Made(comm, [&] { return comm.ReduceScatterV(call); }).message(), "");
  int64_t wrong = 0;
  for (int64_t i = 0; i < own; ++i) {
    wrong += output[i] == Reduced(comm.size(), round, begin + i, call.op) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
  for (int64_t i = own; i < own + surplus; ++i) EXPECT_EQ(output[i], 0.0F);
  if (!in_place) EXPECT_EQ(separate.back(), -77.0F);
}

// What `from` sends to each rank; the counts differ per sender.
inline List Sent(int from, int round, int size) {
  return Counts(size, round + 3 * from);
}

inline void ExchangeOnce(int rank, int round, Communicator& comm) {
  const int64_t item = SizeOf(DType::kInt32);
  const List sent = Sent(rank, round, comm.size());
  List received;
  for (int r = 0; r < comm.size(); ++r) received.push_back(Sent(r, round, comm.size())[At(rank)]);
  const List sdispls = Displacements(sent, round % 2 == 1, 1);
  const List rdispls = Displacements(received, round % 2 == 0, 2);
  const auto gaps = Gaps(received, rdispls, round % 2 == 0 ? 2 : 0);
  Bytes x = Data(rank, round, 0, EndOf(sent, sdispls) * item);
  Bytes want(static_cast<size_t>((EndOf(received, rdispls) + 2) * item), kPoison);
  Bytes output = want;
  Agreement agreement("AllToAllV");
  agreement.Pairwise("sendCounts", sent.data(), "recvCounts", received.data(), rank, comm.size());
  ExchangeVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x.data();
  call.send_counts = sent.data();
  call.sdispls = sdispls.data();
  call.output = output.data();
  call.recv_counts = received.data();
  call.rdispls = rdispls.data();
  call.gaps = gaps.data();
  call.num_gaps = static_cast<int64_t>(gaps.size());
  EXPECT_EQ(Made(comm, [&] { return comm.ExchangeV(call); }).message(), "");
  std::fill(x.begin(), x.end(), kPoison);
  for (int r = 0; r < comm.size(); ++r) {
    const List theirs = Sent(r, round, comm.size());
    const int64_t begin = Displacements(theirs, round % 2 == 1, 1)[At(rank)];
    Put(Data(r, round, begin * item, (begin + received[At(r)]) * item), rdispls[At(r)] * item,
        &want);
  }
  PutZeros(gaps, item, &want);
  EXPECT_TRUE(output == want);
}

inline void AllReduceOnce(int rank, int round, Communicator& comm) {
  const int64_t counts[] = {0, 1, 2, 5, 997, 100003};
  const int64_t count = counts[round % 6];
  std::vector<float> x = Terms(rank, round, count);
  std::vector<float> output(x.size() + 1, -77.0F);
  Agreement agreement("AllReduce");
  agreement.Equal("count", count);
  AllReduceCall call;
  call.agreement = &agreement;
  call.dtype = DType::kFloat32;
  call.op = round % 4 == 0 ? ReduceOp::kMax : ReduceOp::kSum;
  call.count = count;
  call.output = output.data();
  call.x = x.data();
  if (round % 2 == 1) call.x = std::copy(x.begin(), x.end(), output.data()) - count;
  EXPECT_EQ(Made(comm, [&] { return comm.AllReduce(call); }).message(), "");
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    wrong += output[static_cast<size_t>(i)] == Reduced(comm.size(), round, i, call.op) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(output.back(), -77.0F);
}

inline void BroadcastOnce(int rank, int round, Communicator& comm) {
  const int64_t counts[] = {7, 0, 1, 997, 300007};
  const int64_t count = counts[round % 5];
  const int root = round % comm.size();
  Bytes data(static_cast<size_t>(count + 1), kPoison);
  Bytes want = data;
  Put(Data(root, round, 0, count), 0, &want);
  if (rank == root) data = want;
  Agreement agreement("Broadcast");
  agreement.Equal("root", root).Equal("count", count);
  BroadcastCall call;
  call.agreement = &agreement;
  call.dtype = DType::kUInt8;
  call.root = root;
  call.data = data.data();
  call.count = count;
  EXPECT_EQ(Made(comm, [&] { return comm.Broadcast(call); }).message(), "");
  EXPECT_TRUE(data == want);
}

template <void (*kOnce)(int, int, Communicator&)>
void AllRounds(int rank, int, Communicator& comm) {
  for (int round = 0; round < kRounds; ++round) kOnce(rank, round, comm);
}

// Calls of all kinds in an order that a seed determines.
inline void MixedCalls(int rank, int variant, Communicator& comm) {
  constexpr void (*kOnce[])(int, int, Communicator&) = {GatherOnce, ReduceOnce, ExchangeOnce,
                                                        AllReduceOnce, BroadcastOnce};
  for (int i = 0; i < 40; ++i) {
    const uint64_t choice = Hash(variant, i, 5);
    kOnce[choice % 5](rank, static_cast<int>(choice / 5 % kRounds), comm);
    if (choice % 7 == 0) EXPECT_EQ(Made(comm, [&] { return comm.Barrier(); }).message(), "");
  }
}

inline std::vector<Case> DataCases() {
  const std::vector<int> sizes = {1, 2, 3, 4, 7};
  return {
      {"AllGatherV", sizes, 1, 60, AllRounds<GatherOnce>},
      {"ReduceScatterV", sizes, 1, 60, AllRounds<ReduceOnce>},
      {"ExchangeV", sizes, 1, 60, AllRounds<ExchangeOnce>},
      {"AllReduce", sizes, 1, 60, AllRounds<AllReduceOnce>},
      {"Broadcast", sizes, 1, 60, AllRounds<BroadcastOnce>},
      {"mixed calls", {2, 3, 4}, 2, 60, MixedCalls},
  };
}

}  // namespace conformance
