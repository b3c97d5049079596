#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collops/comm/call.h"
#include "collops/core/dtype.h"
#include "collops/core/status.h"

namespace [[gnu::visibility("default")]] collops {

// A part of a peer's input matrix that can be read now: bytes [begin, end) of each of the rows
// [row, row + rows); `data` points at the first byte.
struct MatrixPart {
  const std::byte* data = nullptr;
  int64_t ld_bytes = 0;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// One call in which an operator computes while inputs arrive from its peers and its own results
// leave. What its pointers point to must not change during the call.
struct FusedCallSpec {
  // The first list of a group in the agreement is reader_rows.
  const Agreement* agreement = nullptr;
  DType dtype = DType::kUndefined;

  // The ranks that read each other's inputs, including this one, and the rows of each; both are
  // equal on these ranks. A single rank reads nothing.
  const std::vector<int>* readers = nullptr;
  const std::vector<int64_t>* reader_rows = nullptr;
  int64_t row_bytes = 0;
  // A part that is not read in place has a multiple of this many rows, except the last: at least 1,
  // at most 2048, equal on every rank.
  int64_t row_unit = 1;
  const void* x = nullptr;

  int64_t tile_bytes = 0;  // size of the call's window

  int64_t x_count = 0;  // elements of x, for the trace
  int64_t output_count = 0;
};

// What the body of a fused call can use: the peers' inputs part by part, and the call's window,
// memory that the ranks share during the call: each rank writes its own part, and peers read it in
// place after a signal. Its size is announced with the call and equal on every rank. One object
// per communicator, the same in every call, valid during the body. One thread.
class FusedCall {
 public:
  FusedCall() = default;
  FusedCall(const FusedCall&) = delete;
  FusedCall& operator=(const FusedCall&) = delete;
  virtual ~FusedCall() = default;

  // Does not wait: reads the calls that have arrived, and stages more of the own input. An error
  // ends the body: a rank refused or disagrees, or the group has failed.
  virtual Status Progress() = 0;

  // Whether `rank` has announced this call.
  virtual bool HasAnnounced(int rank) const = 0;
  // The reader_rows of a rank that has announced: as many as `readers`, none negative.
  virtual const std::vector<int64_t>& ReaderRows(int rank) const = 0;

  // The next unread part of the input of readers[index]; false if none can be read yet.
  virtual bool NextPart(size_t index, MatrixPart* part) = 0;
  // The part was read; its place may be written again.
  virtual void ReleasePart(size_t index) = 0;
  // Whether all parts of readers[index] have been released.
  virtual bool AllRead(size_t index) const = 0;

  // This rank's part of the window; null if the call has none.
  virtual std::byte* window() const = 0;
  // The part of a peer that has announced the call; null if the call has none. An error unless the
  // window that the peer named is mapped and has this rank's size.
  virtual Status PeerWindow(int rank, const std::byte** data) const = 0;
  // Whether all peers have read what this rank wrote and signalled in the previous call.
  virtual bool WindowIsFree() const = 0;
  // Signals [0, 2 * rank_size) of this rank: counts that start at 0 and only grow during a call.
  // They contain the call's number, so they are not reset: a call's first signal, allowed once
  // WindowIsFree(), replaces the last one of the previous call. A rank that has seen a signal's
  // count also sees what was written before that signal.
  virtual void Signal(int index, int64_t count) = 0;
  virtual int64_t Signalled(int rank, int index) const = 0;

  // Waits, making progress, until `ready` returns true.
  virtual Status Wait(const std::function<bool()>& ready) = 0;
};

// An operator's part of a fused call.
using FusedBody = std::function<Status(FusedCall*)>;

}  // namespace collops
