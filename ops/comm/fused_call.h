#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm/call.h"
#include "comm/call_window.h"
#include "core/dtype.h"
#include "core/status.h"

namespace collops {

// A part of a peer's input matrix that can be read now: rows [row, row + rows), of each the bytes
// [begin, end); `data` points at the first of them.
struct MatrixPart {
  const std::byte* data = nullptr;
  int64_t ld_bytes = 0;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// One call in which an operator computes while its peers' inputs arrive and its own results leave.
// What the pointers in it point at stays unchanged during the call.
struct FusedCallSpec {
  // Its first list of a group is the readers' rows.
  const Agreement* agreement = nullptr;
  DType dtype = DType::kUndefined;

  // The ranks that read each other's inputs, this one among them; `rows` of each, equal on all of
  // them, and the length of a row. One rank alone: nothing is read.
  const std::vector<int>* readers = nullptr;
  const std::vector<int64_t>* reader_rows = nullptr;
  int64_t row_bytes = 0;
  // Parts that are not read in place have a multiple of this many rows, but for the last: at least
  // 1, at most 2048, equal on every rank.
  int64_t row_unit = 1;
  const void* x = nullptr;

  int64_t tile_bytes = 0;  // of the call's window

  int64_t x_count = 0;  // elements, for the trace
  int64_t output_count = 0;
};

// What the body of a fused call sees of the communicator: inputs of peers part by part, and the
// call's window, memory and signals that peers read. One per communicator, valid during the body.
// One thread.
class FusedCall {
 public:
  virtual ~FusedCall() = default;

  // Looks once, without waiting: hears the ranks that have come, hands out more of the own input.
  // An error ends the body: a rank refused or disagrees, or the group has ended.
  virtual Status Progress() = 0;

  // Whether `rank` has announced this call.
  virtual bool Heard(int rank) const = 0;
  // What a heard rank said of its readers' rows; checked to be as many as `readers`, none negative.
  virtual const std::vector<int64_t>& ReaderRows(int rank) const = 0;

  // The next unread part of the input of readers[index]; false while there is none to be read.
  virtual bool NextPart(size_t index, MatrixPart* part) = 0;
  // The part was read; its place may be written again.
  virtual void ReleasePart(size_t index) = 0;
  // Whether all parts of readers[index] have been released.
  virtual bool AllRead(size_t index) const = 0;

  // The same object in every call.
  virtual CallWindow* window() = 0;

  // Waits, making progress, until `ready` says true.
  virtual Status Wait(const std::function<bool()>& ready) = 0;
};

// An operator's part of a fused call.
using FusedBody = std::function<Status(FusedCall*)>;

}  // namespace collops
