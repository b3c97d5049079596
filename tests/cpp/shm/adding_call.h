// A fused call whose result shows what was read, for the tests of fused calls on shm.
#pragma once

#include <chrono>
#include <cstring>
#include <vector>

#include "collops/comm/fused_call.h"
#include "ranks.h"

namespace adding {

using collops::Agreement;
using collops::Communicator;
using collops::DType;
using collops::FusedCall;
using collops::FusedCallSpec;
using collops::MatrixPart;
using collops::Status;
using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A call of all ranks that reads every rank's matrix of int32 and sums its elements. A tile holds
// one number per rank, which the others read after its signal.
struct Adding {
  int64_t rows = 5;
  int64_t row_bytes = 40;
  int64_t k = 10;
  int64_t row_unit = 1;
  Status (*meanwhile)(int rank, FusedCall* call) = nullptr;

  int64_t sum = 0;
  int64_t tile_sum = 0;
  bool whole_units = true;  // of every part except those at the matrix's end

  Status Run(Communicator* comm, const void* x) {
    std::vector<int> ranks;
    for (int r = 0; r < comm->size(); ++r) ranks.push_back(r);
    const std::vector<int64_t> rows_of(ranks.size(), rows);
    Agreement agreement("LinearParallel");
    agreement.Equal("k", k)
        .EqualInGroup("gatherRows", ranks, comm->rank(), rows_of)
        .EqualInGroup("scatterRows", ranks, comm->rank(), rows_of);
    FusedCallSpec spec;
    spec.agreement = &agreement;
    spec.dtype = DType::kInt32;
    spec.readers = &ranks;
    spec.reader_rows = &rows_of;
    spec.row_bytes = row_bytes;
    spec.row_unit = row_unit;
    spec.x = x;
    spec.tile_bytes = 4096;
    sum = tile_sum = 0;
    return comm->RunFused(spec, [&](FusedCall* call) { return Body(comm, call); });
  }

  Status Body(Communicator* comm, FusedCall* call) {
    const int size = comm->size();
    COLLOPS_RETURN_IF_ERROR(call->Wait([&] { return call->WindowIsFree(); }));
    const int64_t mine = 1000 + comm->rank();
    std::memcpy(call->window(), &mine, sizeof(mine));
    call->Signal(0, 1);
    if (meanwhile != nullptr) COLLOPS_RETURN_IF_ERROR(meanwhile(comm->rank(), call));
    COLLOPS_RETURN_IF_ERROR(call->Wait([&] {
      bool all_read = true;
      for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
        MatrixPart part;
        while (call->NextPart(i, &part)) {
          Add(part);
          call->ReleasePart(i);
        }
        all_read = all_read && call->AllRead(i);
      }
      return all_read;
    }));
    for (int r = 0; r < size; ++r) {
      COLLOPS_RETURN_IF_ERROR(
          call->Wait([&] { return call->HasAnnounced(r) && call->Signalled(r, 0) == 1; }));
      const std::byte* tiles = call->window();
      if (r != comm->rank()) COLLOPS_RETURN_IF_ERROR(call->PeerWindow(r, &tiles));
      int64_t theirs = 0;
      std::memcpy(&theirs, tiles, sizeof(theirs));
      tile_sum += theirs;
    }
    return collops::Ok();
  }

  void Add(const MatrixPart& part) {
    if (part.row % row_unit != 0) whole_units = false;
    if (part.rows % row_unit != 0 && part.row + part.rows != rows) whole_units = false;
    for (int64_t row = 0; row < part.rows; ++row) {
      for (int64_t byte = part.begin; byte < part.end; byte += 4) {
        int32_t value = 0;
        std::memcpy(&value, part.data + row * part.ld_bytes + byte - part.begin, sizeof(value));
        sum += value;
      }
    }
  }
};

// Fills a rank's matrix for that round; returns the sum of its elements.
inline int64_t Fill(int rank, int round, int64_t count, int32_t* x) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    x[i] = static_cast<int32_t>((i * 7 + rank * 13 + round * 31) % 1009);
    sum += x[i];
  }
  return sum;
}

}  // namespace adding
