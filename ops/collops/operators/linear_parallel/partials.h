#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/fused_call.h"
#include "collops/operators/linear_parallel/product.h"

namespace collops {

// Where a rank's partial sums lie in the call's window, a ring of tiles, one for each strip of
// columns: the offset, in floats, of a row among all rows of the product.
int64_t TileOffset(const LinearPlan& plan, int64_t row, int64_t strip);

// The sums of this rank's rows over its group, in rank order, each strip of columns as soon as
// every member has signalled its part. Lives during one fused call; waits for no one.
//
// Signals of a rank: [0, members gathered from) strips of that group of rows that are computed;
// from rank_size on, for each member summed over and each of its groups, strips that are read.
class PartialSums {
 public:
  PartialSums(const LinearRun& run, FusedCall* call);

  // Adds up what has come; `moved` becomes true if anything had.
  Status Take(bool* moved);
  bool CanTake() const;
  bool Done() const;

  // Whether the tile of a group for `strip` may be written: its readers have read the one before.
  bool IsFree(size_t group, int64_t strip) const;

 private:
  // Rows of the output that lie in one group of every member.
  struct Piece {
    int64_t row = 0;  // among all rows of the product
    int64_t rows = 0;
    std::vector<size_t> groups;  // of each member
    int64_t next_strip = 0;
  };
  struct Member {
    int rank = 0;
    const float* tiles = nullptr;
    std::vector<int64_t> first_rows;  // of its groups; one more at the end
  };

  Range OutputRows(size_t member) const;
  Status Locate();
  void CutPieces();
  bool AllHeard() const;
  bool CanTake(const Piece& piece) const;
  Status Sum(const Piece& piece) const;
  void TellRead(size_t member, size_t group) const;
  int ReadIndex(size_t member, size_t group) const;

  const LinearPlan& plan_;
  const LinearStrip strip_;
  FusedCall* call_;
  CallWindow* window_;
  std::vector<Member> members_;
  std::vector<Piece> pieces_;
  bool located_ = false;
};

}  // namespace collops
