#include "collops/operators/linear_parallel/partials.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace collops {
namespace {

std::vector<int64_t> FirstRows(const std::vector<int64_t>& rows) {
  std::vector<int64_t> first(rows.size() + 1, 0);
  std::partial_sum(rows.begin(), rows.end(), first.begin() + 1);
  return first;
}

// The group that row `row` lies in; groups may be empty.
size_t GroupOf(const std::vector<int64_t>& first_rows, int64_t row) {
  const auto after = std::upper_bound(first_rows.begin(), first_rows.end(), row);
  return static_cast<size_t>(after - first_rows.begin()) - 1;
}

}  // namespace

int64_t TileOffset(const LinearPlan& plan, int64_t row, int64_t strip) {
  const int64_t first = strip % plan.memory.tile_slots * plan.layout.total_rows;
  return (first + row) * plan.product->StripColumns(0);
}

PartialSums::PartialSums(const LinearRun& run, FusedCall* call)
    : plan_(run.plan), strip_(run), call_(call), window_(call->window()) {}

Range PartialSums::OutputRows(size_t member) const {
  const LinearLayout& layout = plan_.layout;
  return {layout.scatter.begin[member], layout.scatter.begin[member] + layout.scatter.rows[member]};
}

bool PartialSums::AllHeard() const {
  const std::vector<int>& ranks = plan_.layout.scatter.ranks;
  return std::all_of(ranks.begin(), ranks.end(), [this](int r) { return call_->HasAnnounced(r); });
}

// What the others told of their rows is checked here, before it becomes an offset.
Status PartialSums::Locate() {
  const LinearLayout& layout = plan_.layout;
  for (const int rank : layout.scatter.ranks) {
    const bool own = rank == layout.scatter.ranks[static_cast<size_t>(layout.scatter.index)];
    const std::vector<int64_t>& rows = own ? layout.gather.rows : call_->ReaderRows(rank);
    const std::byte* tiles = window_->data();
    if (!own) COLLOPS_RETURN_IF_ERROR(window_->PeerData(rank, &tiles));
    int64_t total = 0;
    for (const int64_t n : rows) total += std::min(n, layout.total_rows - total);
    COLLOPS_CHECK_ARG(rows.size() == layout.gather.rows.size() && total == layout.total_rows &&
                          std::accumulate(rows.begin(), rows.end(), 0.0) <=
                              static_cast<double>(layout.total_rows),
                      ERROR_RANK_MISMATCH, "LinearParallel: rank ", rank,
                      " announced rows that do not sum to the ", layout.total_rows,
                      " rows of the product");
    members_.push_back({rank, reinterpret_cast<const float*>(tiles), FirstRows(rows)});
  }
  CutPieces();
  located_ = true;
  return Ok();
}

void PartialSums::CutPieces() {
  const Range own = OutputRows(static_cast<size_t>(plan_.layout.scatter.index));
  std::set<int64_t> cuts = {own.begin, own.end};
  for (const Member& member : members_) {
    for (const int64_t row : member.first_rows) {
      if (row > own.begin && row < own.end) cuts.insert(row);
    }
  }
  for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); ++begin, ++end) {
    Piece piece;
    piece.row = *begin;
    piece.rows = *end - *begin;
    for (const Member& member : members_) {
      piece.groups.push_back(GroupOf(member.first_rows, piece.row));
    }
    pieces_.push_back(std::move(piece));
  }
}

bool PartialSums::CanTake(const Piece& piece) const {
  if (piece.next_strip == plan_.product->num_strips()) return false;
  for (size_t m = 0; m < members_.size(); ++m) {
    const int group = static_cast<int>(piece.groups[m]);
    if (window_->Signalled(members_[m].rank, group) <= piece.next_strip) return false;
  }
  return true;
}

bool PartialSums::CanTake() const {
  if (!located_) return AllHeard();
  return std::any_of(pieces_.begin(), pieces_.end(), [this](const Piece& p) { return CanTake(p); });
}

bool PartialSums::Done() const {
  const int64_t num_strips = plan_.product->num_strips();
  return located_ && std::all_of(pieces_.begin(), pieces_.end(), [=](const Piece& piece) {
           return piece.next_strip == num_strips;
         });
}

Status PartialSums::Take(bool* moved) {
  if (!located_) {
    if (!AllHeard()) return Ok();
    COLLOPS_RETURN_IF_ERROR(Locate());
    *moved = true;
  }
  for (Piece& piece : pieces_) {
    while (CanTake(piece)) {
      COLLOPS_RETURN_IF_ERROR(Sum(piece));
      ++piece.next_strip;
      for (size_t m = 0; m < members_.size(); ++m) TellRead(m, piece.groups[m]);
      *moved = true;
    }
  }
  return Ok();
}

Status PartialSums::Sum(const Piece& piece) const {
  const int64_t strip = piece.next_strip;
  std::vector<const float*> partials;
  for (const Member& member : members_) {
    partials.push_back(member.tiles + TileOffset(plan_, piece.row, strip));
  }
  const int64_t row = piece.row - OutputRows(static_cast<size_t>(plan_.layout.scatter.index)).begin;
  return strip_.Store(partials.data(), partials.size(), plan_.product->StripColumns(0), strip, row,
                      piece.rows);
}

int PartialSums::ReadIndex(size_t member, size_t group) const {
  const size_t groups = plan_.layout.gather.rows.size();
  return plan_.rank_size + static_cast<int>(member * groups + group);
}

// A group is as far as the last of the pieces in it.
void PartialSums::TellRead(size_t member, size_t group) const {
  int64_t strips = std::numeric_limits<int64_t>::max();
  for (const Piece& piece : pieces_) {
    if (piece.groups[member] == group) strips = std::min(strips, piece.next_strip);
  }
  window_->Signal(ReadIndex(member, group), strips);
}

bool PartialSums::IsFree(size_t group, int64_t strip) const {
  const int64_t slots = plan_.memory.tile_slots;
  if (strip < slots) return window_->IsFree();
  const LinearLayout& layout = plan_.layout;
  const int64_t begin = layout.gather.begin[group];
  const int index = ReadIndex(static_cast<size_t>(layout.scatter.index), group);
  for (size_t m = 0; m < layout.scatter.ranks.size(); ++m) {
    const Range theirs = OutputRows(m);
    const bool reads =
        std::max(theirs.begin, begin) < std::min(theirs.end, begin + layout.gather.rows[group]);
    if (reads && window_->Signalled(layout.scatter.ranks[m], index) <= strip - slots) return false;
  }
  return true;
}

}  // namespace collops
