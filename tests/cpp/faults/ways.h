// Calls of every way in which data moves, each on memory that a test chooses, with the numbers that
// must come out.
#pragma once

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "collops/operators/framework/collective_terms.h"
#include "pairs/pair_kit.h"
#include "ranks.h"
#include "shm/adding_call.h"

namespace ways {

using collops::Agreement;
using collops::Communicator;
using collops::DType;
using collops::Status;
using collops::Transfer;

inline int32_t Value(int rank, int64_t i, int salt = 0) {
  return static_cast<int32_t>((rank + 1) * 100003 + i * 7 + salt * 7919);
}

// What one way moves: `each` int32 per block.
struct Way {
  const char* name;
  const char* op;  // as messages name it
  int64_t each;
  bool blocks;   // x has a block for every rank, else it is one block
  bool gathers;  // output has a block of every rank, else it is one block
  Status (*call)(const Way& way, Communicator& comm, int32_t* x, int32_t* output);
  int32_t (*want)(const Way& way, int rank, int size, int64_t i);
  int salt = 0;  // other data

  int64_t x_elements(int size) const { return blocks ? each * size : each; }
  int64_t output_elements(int size) const;

  void Fill(int rank, int size, int32_t* x) const {
    for (int64_t i = 0; i < x_elements(size); ++i) x[i] = Value(rank, i, salt);
  }
  // How many elements of the output are not what they must be.
  int64_t Wrong(int rank, int size, const int32_t* output) const {
    int64_t wrong = 0;
    for (int64_t i = 0; i < output_elements(size); ++i) {
      wrong += output[i] != want(*this, rank, size, i);
    }
    return wrong;
  }
  Status Call(Communicator& comm, int32_t* x, int32_t* output) const {
    return call(*this, comm, x, output);
  }
};

// Equal counts, and displacements without gaps.
struct Even {
  Even(int size, int64_t each)
      : counts(static_cast<size_t>(size), each), displs(static_cast<size_t>(size)) {
    std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), int64_t{0});
  }
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

inline Agreement Terms(const char* op, int size, const Even& even) {
  collops::CollectiveTerms terms;
  terms.dtype = "int32";
  Agreement agreement(op);
  collops::AddTerms(terms, &agreement);
  agreement.EqualList("counts", even.counts.data(), size);
  return agreement;
}

inline Status Gather(const Way& way, Communicator& comm, int32_t* x, int32_t* output) {
  const Even even(comm.size(), way.each);
  const Agreement agreement = Terms("AllGatherV", comm.size(), even);
  collops::AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x;
  call.output = output;
  call.recv_counts = even.counts.data();
  call.rdispls = even.displs.data();
  return comm.AllGatherV(call);
}

inline Status Scatter(const Way& way, Communicator& comm, int32_t* x, int32_t* output) {
  const Even even(comm.size(), way.each);
  const Agreement agreement = Terms("ReduceScatterV", comm.size(), even);
  collops::ReduceScatterVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x;
  call.output = output;
  call.output_count = way.each;
  call.send_counts = even.counts.data();
  call.sdispls = even.displs.data();
  return comm.ReduceScatterV(call);
}

inline Status ExchangeBlocks(const Way& way, Communicator& comm, int32_t* x, int32_t* output) {
  const Even even(comm.size(), way.each);
  Agreement agreement("AllToAllV");
  agreement.Pairwise("sendCounts", even.counts.data(), "recvCounts", even.counts.data(),
                     comm.rank(), comm.size());
  collops::ExchangeVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x;
  call.output = output;
  call.send_counts = call.recv_counts = even.counts.data();
  call.sdispls = call.rdispls = even.displs.data();
  return comm.ExchangeV(call);
}

inline Status Sum(const Way& way, Communicator& comm, int32_t* x, int32_t* output) {
  const Even even(comm.size(), way.each);
  const Agreement agreement = Terms("AllReduce", comm.size(), even);
  collops::AllReduceCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x;
  call.output = output;
  call.count = way.each;
  return comm.AllReduce(call);
}

// Every rank reads every rank's x, part by part, and writes the sum of all elements.
inline Status Fuse(const Way& way, Communicator& comm, int32_t* x, int32_t* output) {
  constexpr int64_t kColumns = 1000;
  adding::Adding adding;
  adding.rows = way.each / kColumns;
  adding.row_bytes = kColumns * int64_t{sizeof(int32_t)};
  const Status status = adding.Run(&comm, x);
  output[0] = static_cast<int32_t>(adding.sum);
  return status;
}

// Each rank sends to the next one and receives from the one before.
inline Status Pass(const Way& way, Communicator& comm, int32_t* x, int32_t* output) {
  const int next = (comm.rank() + 1) % comm.size();
  const int before = (comm.rank() + comm.size() - 1) % comm.size();
  const int64_t bytes = way.each * int64_t{sizeof(int32_t)};
  Transfer both[] = {pairs::Make(Transfer::kSend, next, 3, x, bytes, DType::kInt32),
                     pairs::Make(Transfer::kRecv, before, 3, output, bytes, DType::kInt32)};
  return comm.Messages("exchange", both, 2);
}

inline int32_t Gathered(const Way& way, int /*rank*/, int /*size*/, int64_t i) {
  return Value(static_cast<int>(i / way.each), i % way.each, way.salt);
}
inline int32_t Scattered(const Way& way, int rank, int size, int64_t i) {
  int32_t sum = 0;
  for (int r = 0; r < size; ++r) sum += Value(r, rank * way.each + i, way.salt);
  return sum;
}
inline int32_t Exchanged(const Way& way, int rank, int /*size*/, int64_t i) {
  return Value(static_cast<int>(i / way.each), rank * way.each + i % way.each, way.salt);
}
inline int32_t Summed(const Way& way, int /*rank*/, int size, int64_t i) {
  int32_t sum = 0;
  for (int r = 0; r < size; ++r) sum += Value(r, i, way.salt);
  return sum;
}
inline int32_t Fused(const Way& way, int /*rank*/, int size, int64_t /*i*/) {
  int64_t sum = 0;
  for (int r = 0; r < size; ++r) {
    for (int64_t k = 0; k < way.each; ++k) sum += Value(r, k, way.salt);
  }
  return static_cast<int32_t>(sum);
}
inline int32_t Passed(const Way& way, int rank, int size, int64_t i) {
  return Value((rank + size - 1) % size, i, way.salt);
}

inline int64_t Way::output_elements(int size) const {
  if (want == Fused) return 1;
  return gathers ? each * size : each;
}

// Small inputs travel in the call record or the envelope, the others through the stage or a ring,
// in more chunks than it has room for.
inline const std::vector<Way>& All() {
  static const std::vector<Way> all = {
      {"small gather", "AllGatherV", 100, false, true, Gather, Gathered},
      {"chunked gather", "AllGatherV", 400000, false, true, Gather, Gathered},
      {"small scatter", "ReduceScatterV", 30, true, false, Scatter, Scattered},
      {"chunked scatter", "ReduceScatterV", 300000, true, false, Scatter, Scattered},
      {"chunked exchange", "AllToAllV", 300000, true, true, ExchangeBlocks, Exchanged},
      {"sum in one step", "AllReduce", 6000, false, false, Sum, Summed},
      {"sum in two steps", "AllReduce", 400000, false, false, Sum, Summed},
      {"fused", "LinearParallel", 900000, false, false, Fuse, Fused},
      {"small message", "exchange", 10, false, false, Pass, Passed},
      {"long message", "exchange", 800000, false, false, Pass, Passed},
  };
  return all;
}

}  // namespace ways
