// The engine over windows: a rank multiplies the rows that have come while others arrive, and adds
// up its peers' partial sums where they lie.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "collops/comm/fused_call.h"
#include "collops/core/deadline.h"
#include "collops/core/trace/log.h"
#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/product.h"

namespace collops {
namespace {

// How long a call waits in all for rows that are not there yet: multiplied by themselves later,
// they need the weight once more. Those of ranks that are in the call are on their way.
constexpr double kInCallPatienceS = 20e-3;

// Of other ranks nothing is known: as long as a core takes to load the weight, at least so long.
constexpr double kWeightBytesPerS = 4e9;
constexpr double kPatienceS = 200e-6;
// Few rows take as long as the weight takes to pass by: to begin without the others gains nothing.
constexpr double kJoinPatienceS = 5e-3;

// How long a call has waited, in the time for which its thread ran: where the ranks have fewer
// cores than they are, one that waits lets the others run, and their rows come meanwhile. But no
// longer than kMostS by the clock on the wall: beside other programs the thread hardly runs at all.
class Patience {
 public:
  // Called again and again while the call waits for up to `seconds`, less what it waited before.
  bool Lasts(double seconds) {
    const double now = ThreadSeconds();
    if (!end_) end_ = Deadline::After(kMostS);
    if (since_) waited_ += now - *since_;
    since_ = now;
    return waited_ < seconds && !end_->Passed();
  }
  // The call has something to do, which is not counted.
  void Stop() { since_.reset(); }

 private:
  static constexpr double kMostS = 50e-3;

  static double ThreadSeconds() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  double waited_ = 0;
  std::optional<double> since_;
  std::optional<Deadline> end_;
};

Status AcceptsWindows(const EnginePlace& place) {
  COLLOPS_RETURN_IF_ERROR(CheckOnCpu(place));
  COLLOPS_CHECK_ARG(!place.has_experts, ERROR_UNSUPPORTED, "it does not run types with experts");
  COLLOPS_CHECK_ARG(!place.alone(), ERROR_UNSUPPORTED, "this product needs no communication");
  COLLOPS_CHECK_ARG(place.has_windows, ERROR_UNSUPPORTED, "backend ", place.backend,
                    " has no windows");
  COLLOPS_CHECK_ARG(place.windows_wanted, ERROR_UNSUPPORTED,
                    "COLLOPS_FUSED=0 selects the pipeline");
  return Ok();
}

// Two, so that adding up one strip and multiplying the next overlap. Small ones are kept longer:
// ranks that share a core then take turns less often.
int64_t TileSlots(int64_t num_strips, int64_t tile_bytes) {
  constexpr int64_t kRingBytes = 1 << 20;
  const int64_t fitting = kRingBytes / std::max<int64_t>(tile_bytes, 1);
  return std::min(std::max<int64_t>(fitting, 2), num_strips);
}

Status PlanWindows(LinearPlan* plan) {
  Places places = PlaceRows(plan);
  LinearMemory& memory = plan->memory;
  const int64_t tile_bytes = TileBytes(*plan) * MostRoots(*plan);
  if (SumsPartials(*plan)) {
    memory.tile_slots = TileSlots(plan->gemm.num_strips(), tile_bytes);
    memory.tile_bytes = memory.tile_slots * tile_bytes;
  } else {
    memory.tile = places.Take(tile_bytes);
  }
  memory.bytes = places.bytes();
  return Ok();
}

// Whether the ranks share out the sums of rows that all of them want. Two would only wait for each
// other once more.
bool SharesSums(const LinearPlan& plan) {
  return plan.layout.scatter.ranks.size() > 2 && AllReduces(plan) && plan.layout.total_rows > 0;
}

// Whether all ranks that add up have announced the call.
bool AllHeard(const LinearPlan& plan, const FusedCall& call) {
  const std::vector<int>& ranks = plan.layout.scatter.ranks;
  return std::all_of(ranks.begin(), ranks.end(), [&](int r) { return call.HasAnnounced(r); });
}

std::vector<int64_t> FirstRows(const std::vector<int64_t>& rows) {
  std::vector<int64_t> first(rows.size() + 1, 0);
  std::partial_sum(rows.begin(), rows.end(), first.begin() + 1);
  return first;
}

// The group that row `row` lies in; groups may be empty.
size_t GroupWith(const std::vector<int64_t>& first_rows, int64_t row) {
  const auto after = std::upper_bound(first_rows.begin(), first_rows.end(), row);
  return static_cast<size_t>(after - first_rows.begin()) - 1;
}

// The sums of partial products over a group, of each strip of columns as soon as every member has
// signalled its part. Lives during one fused call; waits for no one. A rank signals at [0, members
// gathered from) how many strips of that group of rows are computed.
class Sums {
 public:
  Sums() = default;
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;
  virtual ~Sums() = default;

  // Adds up what has come; `moved` becomes true if anything had.
  virtual Status Take(bool* moved) = 0;
  virtual bool CanTake() const = 0;
  virtual bool Done() const = 0;

  // Whether the tile of a group for `strip` may be written: its readers have read the one before.
  virtual bool IsFree(size_t group, int64_t strip) const = 0;
  // Whether all is there that its readers need to read the one before, so that it will be free
  // soon.
  virtual bool IsAboutToBeFree(size_t group, int64_t strip) const = 0;
};

// Where a rank's partial sums lie in the call's window, a ring of tiles, one for each root of each
// strip of columns: the offset, in floats, of a row among all rows of the product.
int64_t TileOffset(const LinearPlan& plan, int64_t row, int64_t strip, int64_t root = 0) {
  const int64_t tile = strip % plan.memory.tile_slots * MostRoots(plan) + root;
  return (tile * plan.layout.total_rows + row) * plan.gemm.StripColumns(0);
}

// The sums of this rank's rows, in rank order. From rank_size on a rank signals, for each member
// summed over and each of its groups, how many strips it has read.
class PartialSums : public Sums {
 public:
  PartialSums(const LinearRun& run, FusedCall* call);

  Status Take(bool* moved) override;
  bool CanTake() const override;
  bool Done() const override;
  bool IsFree(size_t group, int64_t strip) const override;
  bool IsAboutToBeFree(size_t group, int64_t strip) const override;

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
  bool CanTake(const Piece& piece) const;
  void Sum(const Piece& piece) const;
  void TellRead(size_t member, size_t group) const;
  int ReadIndex(size_t member, size_t group) const;

  const LinearPlan& plan_;
  const LinearStrip strip_;
  FusedCall* call_;
  std::vector<Member> members_;
  std::vector<Piece> pieces_;
  bool located_ = false;
};

PartialSums::PartialSums(const LinearRun& run, FusedCall* call)
    : plan_(run.plan), strip_(run), call_(call) {}

Range PartialSums::OutputRows(size_t member) const {
  const LinearLayout& layout = plan_.layout;
  return {layout.scatter.begin[member], layout.scatter.begin[member] + layout.scatter.rows[member]};
}

// What the others told of their rows is checked here, before it becomes an offset.
Status PartialSums::Locate() {
  const LinearLayout& layout = plan_.layout;
  for (const int rank : layout.scatter.ranks) {
    const bool own = rank == layout.scatter.ranks[static_cast<size_t>(layout.scatter.index)];
    const std::vector<int64_t>& rows = own ? layout.gather.rows : call_->ReaderRows(rank);
    const std::byte* tiles = call_->window();
    if (!own) COLLOPS_RETURN_IF_ERROR(call_->PeerWindow(rank, &tiles));
    int64_t total = 0;
    for (const int64_t n : rows) total += std::min(n, layout.total_rows - total);
    COLLOPS_CHECK_ARG(rows.size() == layout.gather.rows.size() && total == layout.total_rows &&
                          std::accumulate(rows.begin(), rows.end(), 0.0) <=
                              static_cast<double>(layout.total_rows),
                      ERROR_RANK_MISMATCH, plan_.called, ": rank ", rank,
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
      piece.groups.push_back(GroupWith(member.first_rows, piece.row));
    }
    pieces_.push_back(std::move(piece));
  }
}

bool PartialSums::CanTake(const Piece& piece) const {
  if (piece.next_strip == plan_.gemm.num_strips()) return false;
  for (size_t m = 0; m < members_.size(); ++m) {
    const int group = static_cast<int>(piece.groups[m]);
    if (call_->Signalled(members_[m].rank, group) <= piece.next_strip) return false;
  }
  return true;
}

bool PartialSums::CanTake() const {
  if (!located_) return AllHeard(plan_, *call_);
  return std::any_of(pieces_.begin(), pieces_.end(), [this](const Piece& p) { return CanTake(p); });
}

bool PartialSums::Done() const {
  const int64_t num_strips = plan_.gemm.num_strips();
  return located_ && std::all_of(pieces_.begin(), pieces_.end(), [=](const Piece& piece) {
           return piece.next_strip == num_strips;
         });
}

Status PartialSums::Take(bool* moved) {
  if (!located_) {
    if (!AllHeard(plan_, *call_)) return Ok();
    COLLOPS_RETURN_IF_ERROR(Locate());
    *moved = true;
  }
  for (Piece& piece : pieces_) {
    while (CanTake(piece)) {
      Sum(piece);
      ++piece.next_strip;
      for (size_t m = 0; m < members_.size(); ++m) TellRead(m, piece.groups[m]);
      *moved = true;
    }
  }
  return Ok();
}

void PartialSums::Sum(const Piece& piece) const {
  const int64_t strip = piece.next_strip;
  std::vector<const float*> partials;
  for (size_t m = 0; m < members_.size(); ++m) {
    for (int64_t root = 0; root < RootsOf(plan_, m); ++root) {
      partials.push_back(members_[m].tiles + TileOffset(plan_, piece.row, strip, root));
    }
  }
  const int64_t row = piece.row - OutputRows(static_cast<size_t>(plan_.layout.scatter.index)).begin;
  strip_.Store(partials.data(), partials.size(), plan_.gemm.StripColumns(0), strip, row,
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
  call_->Signal(ReadIndex(member, group), strips);
}

bool PartialSums::IsFree(size_t group, int64_t strip) const {
  const int64_t slots = plan_.memory.tile_slots;
  if (strip < slots) return call_->WindowIsFree();
  const LinearLayout& layout = plan_.layout;
  const int64_t begin = layout.gather.begin[group];
  const int index = ReadIndex(static_cast<size_t>(layout.scatter.index), group);
  for (size_t m = 0; m < layout.scatter.ranks.size(); ++m) {
    const Range theirs = OutputRows(m);
    const bool reads =
        std::max(theirs.begin, begin) < std::min(theirs.end, begin + layout.gather.rows[group]);
    if (reads && call_->Signalled(layout.scatter.ranks[m], index) <= strip - slots) return false;
  }
  return true;
}

bool PartialSums::IsAboutToBeFree(size_t group, int64_t strip) const {
  if (!located_) return false;
  const int64_t begin = plan_.layout.gather.begin[group];
  const int64_t end = begin + plan_.layout.gather.rows[group];
  return std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
    for (size_t g = GroupWith(member.first_rows, begin); member.first_rows[g] < end; ++g) {
      const int64_t strips = call_->Signalled(member.rank, static_cast<int>(g));
      if (strips <= strip - plan_.memory.tile_slots) return false;
    }
    return true;
  });
}

// The sums of all rows where every rank wants all of them: a strip is added up by one rank, in the
// place of its own part, where the others read it. So each rank reads two strips for every one, not
// as many as there are ranks.
class SharedSums : public Sums {
 public:
  SharedSums(const LinearRun& run, FusedCall* call)
      : plan_(run.plan),
        strip_(run),
        call_(call),
        ranks_(plan_.layout.scatter.ranks.size()),
        next_own_(plan_.layout.scatter.index) {}

  Status Take(bool* moved) override {
    if (tiles_.empty()) {
      if (!AllHeard(plan_, *call_)) return Ok();
      COLLOPS_RETURN_IF_ERROR(Locate());
      *moved = true;
    }
    while (CanAdd()) {
      Add(next_own_);
      call_->Signal(kAdded, next_own_ + 1);
      next_own_ += static_cast<int64_t>(ranks_);
      *moved = true;
    }
    while (CanStore()) {
      const float* const sum = Tile(Adder(next_), next_, 0);
      strip_.StoreSummed(sum, plan_.gemm.StripColumns(0), next_);
      call_->Signal(kStored, ++next_);
      *moved = true;
    }
    return Ok();
  }

  bool CanTake() const override {
    return tiles_.empty() ? AllHeard(plan_, *call_) : CanAdd() || CanStore();
  }

  bool Done() const override { return !tiles_.empty() && next_ == plan_.gemm.num_strips(); }

  // A part has been read once its strip is added up, and the sum once all have stored it.
  bool IsFree(size_t /*group*/, int64_t strip) const override {
    const int64_t before = strip - plan_.memory.tile_slots;
    if (before < 0) return call_->WindowIsFree();
    const size_t adder = Adder(before);
    if (adder != static_cast<size_t>(plan_.layout.scatter.index)) return IsAdded(before);
    return AllSignalled(kStored, before);
  }

  // There is one group only.
  bool IsAboutToBeFree(size_t /*group*/, int64_t /*strip*/) const override { return false; }

 private:
  // How many strips are computed, added up (of those that this rank adds, up to the last one), and
  // stored.
  enum : int { kComputed, kAdded, kStored };

  size_t Adder(int64_t strip) const { return static_cast<size_t>(strip) % ranks_; }
  int RankOf(size_t member) const { return plan_.layout.scatter.ranks[member]; }

  const float* Tile(size_t member, int64_t strip, int64_t root) const {
    return tiles_[member] + TileOffset(plan_, 0, strip, root);
  }

  bool AllSignalled(int index, int64_t strip) const {
    const std::vector<int>& ranks = plan_.layout.scatter.ranks;
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](int r) { return call_->Signalled(r, index) > strip; });
  }

  bool IsAdded(int64_t strip) const {
    return call_->Signalled(RankOf(Adder(strip)), kAdded) > strip;
  }
  bool CanAdd() const {
    return next_own_ < plan_.gemm.num_strips() && AllSignalled(kComputed, next_own_);
  }
  bool CanStore() const { return next_ < plan_.gemm.num_strips() && IsAdded(next_); }

  Status Locate() {
    std::vector<const float*> found;
    for (size_t m = 0; m < ranks_; ++m) {
      const std::byte* tiles = call_->window();
      if (m != static_cast<size_t>(plan_.layout.scatter.index)) {
        COLLOPS_RETURN_IF_ERROR(call_->PeerWindow(RankOf(m), &tiles));
      }
      found.push_back(reinterpret_cast<const float*>(tiles));
    }
    tiles_ = std::move(found);
    return Ok();
  }

  void Add(int64_t strip) const {
    std::vector<const float*> partials;
    for (size_t m = 0; m < ranks_; ++m) {
      for (int64_t root = 0; root < RootsOf(plan_, m); ++root) {
        partials.push_back(Tile(m, strip, root));
      }
    }
    auto* const sum = reinterpret_cast<float*>(call_->window()) + TileOffset(plan_, 0, strip);
    strip_.Sum(partials.data(), partials.size(), plan_.gemm.StripColumns(0), strip, sum);
  }

  const LinearPlan& plan_;
  const LinearStrip strip_;
  FusedCall* call_;
  const size_t ranks_;
  std::vector<const float*> tiles_;  // of each member, once all have announced the call
  int64_t next_own_;                 // strip that this rank adds up
  int64_t next_ = 0;                 // strip that is stored
};

std::unique_ptr<Sums> MakeSums(const LinearRun& run, FusedCall* call) {
  if (!SumsPartials(run.plan)) return nullptr;
  if (SharesSums(run.plan)) return std::make_unique<SharedSums>(run, call);
  return std::make_unique<PartialSums>(run, call);
}

// Multiplies the rows that are there while others arrive, and sums partial products as they come.
// No barrier inside.
class WindowsLinear {
 public:
  WindowsLinear(const LinearRun& run, FusedCall* call)
      : plan_(run.plan),
        call_(call),
        rows_(run),
        strip_(run),
        next_strip_(rows_.groups().size(), 0),
        tile_(reinterpret_cast<float*>(run.workspace + plan_.memory.tile)),
        sums_(MakeSums(run, call)) {
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      if (rows_.groups()[g].rows == 0) next_strip_[g] = plan_.gemm.num_strips();
    }
  }

  Status Run() {
    while (!Done()) {
      bool moved = false;
      COLLOPS_RETURN_IF_ERROR(TakeArrived(&moved));
      if (moved) {
        patience_.Stop();
        continue;
      }
      Choose(&chosen_);
      if (!chosen_.empty() && IsWorthWaiting()) {
        std::this_thread::yield();
        continue;
      }
      patience_.Stop();
      if (chosen_.empty()) {
        COLLOPS_RETURN_IF_ERROR(call_->Wait([&] { return CanMove(); }));
      } else {
        COLLOPS_RETURN_IF_ERROR(Multiply(chosen_));
      }
    }
    return Ok();
  }

 private:
  bool Done() const {
    const int64_t num_strips = plan_.gemm.num_strips();
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      if (next_strip_[g] != num_strips || !call_->AllRead(g)) return false;
    }
    return !sums_ || sums_->Done();
  }

  // Takes the rows and adds up the partial sums that have come; own rows first.
  Status TakeArrived(bool* moved) {
    COLLOPS_RETURN_IF_ERROR(call_->Progress());
    const size_t num_groups = next_strip_.size();
    for (size_t i = 0; i < num_groups; ++i) {
      const size_t g = (static_cast<size_t>(plan_.layout.gather.index) + i) % num_groups;
      MatrixPart part;
      while (call_->NextPart(g, &part)) {
        rows_.Take(g, part);
        call_->ReleasePart(g);
        *moved = true;
      }
    }
    return sums_ ? sums_->Take(moved) : Ok();
  }

  // The groups whose rows are there and whose next strip, the same for all of them, is the first:
  // they share one pass over it. None, to be asked again, while a tile is about to be free in which
  // a further group would share it. Rows that were joined stay together.
  void Choose(std::vector<size_t>* groups) const {
    groups->clear();
    int64_t first_soon = plan_.gemm.num_strips();
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      if (!CanMultiply(g)) {
        if (rows_.joined() && IsLeft(g)) return groups->clear();
        if (CanMultiplySoon(g)) first_soon = std::min(first_soon, next_strip_[g]);
        continue;
      }
      if (!groups->empty() && next_strip_[g] < next_strip_[groups->front()]) groups->clear();
      if (groups->empty() || next_strip_[g] == next_strip_[groups->front()]) groups->push_back(g);
    }
    if (!groups->empty() && first_soon <= next_strip_[groups->front()]) groups->clear();
  }

  bool IsLeft(size_t g) const { return next_strip_[g] < plan_.gemm.num_strips(); }

  bool CanMultiply(size_t g) const {
    return IsLeft(g) && call_->AllRead(g) && (!sums_ || sums_->IsFree(g, next_strip_[g]));
  }

  // Without anything that a late rank has yet to do.
  bool CanMultiplySoon(size_t g) const {
    return IsLeft(g) && call_->AllRead(g) && sums_ && sums_->IsAboutToBeFree(g, next_strip_[g]);
  }

  bool CanMove() {
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      MatrixPart part;
      if (call_->NextPart(g, &part)) return true;
    }
    Choose(&chosen_);
    if (!chosen_.empty()) return true;
    return Done() || (sums_ && sums_->CanTake());
  }

  // Whether rows that could share the chosen strip are missing and worth waiting for. Few rows are
  // joined before the first strip, once all of them are there.
  bool IsWorthWaiting() {
    const int64_t strip = next_strip_[chosen_.front()];
    bool begun = false;
    bool missing_in_call = false;
    bool missing_others = false;
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      if (rows_.groups()[g].rows == 0) continue;
      begun = begun || next_strip_[g] > 0;
      if (next_strip_[g] > strip || call_->AllRead(g)) continue;
      const bool in_call = call_->HasAnnounced(plan_.layout.gather.ranks[g]);
      (in_call ? missing_in_call : missing_others) = true;
    }
    if (missing_in_call) return patience_.Lasts(kInCallPatienceS);
    const bool joins = rows_.joins() && !begun;
    if (missing_others) return patience_.Lasts(joins ? kJoinPatienceS : LoadsWeightS());
    if (joins && !rows_.joined()) rows_.Join();
    return false;
  }

  // What rows that come later take more, or no longer than is worth a thought.
  double LoadsWeightS() const {
    const int64_t bytes = plan_.gemm.n * plan_.gemm.k * SizeOf(plan_.dtype);
    return std::max(static_cast<double>(bytes) / kWeightBytesPerS, kPatienceS);
  }

  // One strip of columns of the groups' rows; what arrives meanwhile is taken between two blocks.
  Status Multiply(const std::vector<size_t>& groups) {
    const int64_t strip = next_strip_[groups.front()];
    std::vector<LinearStrip::Task> tasks;
    if (rows_.joined()) {
      tasks.push_back({rows_.all(), Tile(0, strip)});
    } else {
      for (const size_t g : groups) {
        rows_.Pack(g);
        const GatheredRows::Group& group = rows_.groups()[g];
        tasks.push_back({group, Tile(group.first_row, strip)});
      }
    }
    for (int64_t k_block = 0; k_block < plan_.gemm.num_k_blocks(); ++k_block) {
      strip_.Multiply(tasks, strip, k_block, ld_);
      bool moved = false;
      COLLOPS_RETURN_IF_ERROR(TakeArrived(&moved));
    }
    for (const size_t g : groups) Finish(g, strip);
    return Ok();
  }

  // Hands on the product of a group's rows and one strip.
  void Finish(size_t g, int64_t strip) {
    const GatheredRows::Group& group = rows_.groups()[g];
    const int64_t row = group.first_row;
    const float* tile = Tile(row, strip);
    if (!sums_) strip_.Store(&tile, 1, ld_, strip, row, group.rows);
    next_strip_[g] = strip + 1;
    if (sums_) call_->Signal(static_cast<int>(g), next_strip_[g]);
    if (traced_) TraceStrip(g, strip);
  }

  float* Tile(int64_t row, int64_t strip) const {
    if (!sums_) return tile_ + row * ld_;
    return reinterpret_cast<float*>(call_->window()) + TileOffset(plan_, row, strip);
  }

  void TraceStrip(size_t g, int64_t strip) const {
    const std::chrono::duration<double, std::milli> at = std::chrono::steady_clock::now() - start_;
    Log(LogLevel::kDebug,
        Concat("  rows of rank ", plan_.layout.gather.ranks[g], " strip ", strip + 1, "/",
               plan_.gemm.num_strips(), " on rank ",
               plan_.layout.gather.ranks[static_cast<size_t>(plan_.layout.gather.index)], " at ",
               at.count(), " ms"));
  }

  const LinearPlan& plan_;
  FusedCall* call_;
  GatheredRows rows_;
  LinearStrip strip_;
  std::vector<int64_t> next_strip_;
  std::vector<size_t> chosen_;
  float* tile_;
  const int64_t ld_ = plan_.gemm.StripColumns(0);
  const std::unique_ptr<Sums> sums_;  // null: nothing is summed
  Patience patience_;
  const bool traced_ = TraceStrips();
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// All that the communicator is told of the call. It points into the run.
FusedCallSpec MakeSpec(const LinearRun& run) {
  const LinearPlan& plan = run.plan;
  const LinearLayout& layout = plan.layout;
  FusedCallSpec spec;
  spec.agreement = &run.agreement;
  spec.dtype = plan.dtype;
  spec.readers = &layout.gather.ranks;
  spec.reader_rows = &layout.gather.rows;
  spec.row_bytes = RowBytes(plan);
  spec.row_unit = kernels::kGemmRowUnit;
  spec.x = run.tensors.x;
  spec.tile_bytes = plan.memory.tile_bytes;
  spec.x_count = layout.gather.rows[static_cast<size_t>(layout.gather.index)] * layout.k;
  spec.output_count = layout.scatter.rows[static_cast<size_t>(layout.scatter.index)] * layout.n;
  return spec;
}

Status RunWindows(const LinearRun& run) {
  return run.communicator->RunFused(
      MakeSpec(run), [&](FusedCall* call) { return WindowsLinear(run, call).Run(); });
}

}  // namespace

const Engine kWindows = {"windows", &AcceptsWindows, &PlanWindows, &RunWindows};

}  // namespace collops
