// Groups, rows and shapes of LinearParallel: every grid of up to 8 ranks against a plain search.
// What is refused: tests/refusals.
#include "collops/operators/linear_parallel/layout.h"

#include <limits>

#include "check.h"

using namespace collops;

namespace {

using P = LinearParallelParam;
using Rows = std::vector<int64_t>;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TensorDesc Desc(const Shape& shape) {
  TensorDesc desc;
  desc.dtype = DType::kFloat32;
  desc.shape = shape;
  return desc;
}

// One layout of a rank; x and weight [n, k] as given.
struct Case {
  P param;
  int rank = 0;
  int rank_size = 4;
  Shape x = {6, 5};
  Shape weight = {7, 5};

  Status Make(LinearLayout* layout) const {
    return MakeLinearLayout(param, rank, rank_size, {Desc(x), Desc(weight)}, layout);
  }
};

Case GridCase(int ag, int rs, int inner, int rank) {
  Case c;
  c.param.type = P::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  c.param.twoDimTPInfo.agDim = static_cast<uint16_t>(ag);
  c.param.twoDimTPInfo.rsDim = static_cast<uint16_t>(rs);
  c.param.twoDimTPInfo.innerDimIsAg = static_cast<uint8_t>(inner);
  c.rank = rank;
  c.rank_size = ag * rs;
  return c;
}

Case TypeCase(P::ParallelType type, int rank, int rank_size) {
  Case c;
  c.param.type = type;
  c.rank = rank;
  c.rank_size = rank_size;
  return c;
}

int AgIndex(const Case& c, int r) {
  const P::TwoDimTPInfo& info = c.param.twoDimTPInfo;
  return info.innerDimIsAg != 0 ? r % info.agDim : r / info.rsDim;
}

int RsIndex(const Case& c, int r) {
  const P::TwoDimTPInfo& info = c.param.twoDimTPInfo;
  return info.innerDimIsAg != 0 ? r / info.agDim : r % info.rsDim;
}

// The ranks whose `same` index is this rank's, at the places that `place` says.
template <typename Same, typename Place>
std::vector<int> Members(const Case& c, int size, Same same, Place place) {
  std::vector<int> ranks(static_cast<size_t>(size), -1);
  for (int r = 0; r < c.rank_size; ++r) {
    if (same(c, r) == same(c, c.rank)) ranks[static_cast<size_t>(place(c, r))] = r;
  }
  return ranks;
}

void ExpectGroups(const Case& c) {
  const P::TwoDimTPInfo& info = c.param.twoDimTPInfo;
  LinearLayout layout;
  ASSERT_EQ(c.Make(&layout).message(), std::string());
  EXPECT_EQ(layout.gather.ranks, Members(c, info.agDim, RsIndex, AgIndex));
  EXPECT_EQ(layout.scatter.ranks, Members(c, info.rsDim, AgIndex, RsIndex));
  EXPECT_EQ(layout.gather.index, AgIndex(c, c.rank));
  EXPECT_EQ(layout.scatter.index, RsIndex(c, c.rank));
}

template <typename Check>
void ForEveryGrid(Check check) {
  for (int rank_size = 1; rank_size <= 8; ++rank_size) {
    for (int ag = 1; ag <= rank_size; ++ag) {
      for (int rank = 0; rank_size % ag == 0 && rank < rank_size; ++rank) {
        check(GridCase(ag, rank_size / ag, 0, rank));
        check(GridCase(ag, rank_size / ag, 1, rank));
      }
    }
  }
}

void Refused(const Case& c, ErrorCode code, const std::string& part) {
  LinearLayout layout;
  const Status status = c.Make(&layout);
  EXPECT_EQ(std::string(ErrorName(status.code())), std::string(ErrorName(code)));
  EXPECT_CONTAINS(status.message(), part);
  EXPECT_CONTAINS(status.message(), "LinearParallel: ");
}

LinearLayout Made(const Case& c) {
  LinearLayout layout;
  EXPECT_EQ(c.Make(&layout).message(), std::string());
  return layout;
}

}  // namespace

TEST(GroupsOfEveryGrid) {
  ForEveryGrid([](Case c) {
    c.x = {c.param.twoDimTPInfo.rsDim, 5};
    ExpectGroups(c);
  });
}

TEST(EvenRowsOfEveryGrid) {
  ForEveryGrid([](Case c) {
    const int64_t ag = c.param.twoDimTPInfo.agDim;
    const int64_t rs = c.param.twoDimTPInfo.rsDim;
    c.x = {3 * rs, 5};
    const LinearLayout layout = Made(c);
    EXPECT_EQ(layout.total_rows, 3 * ag * rs);
    EXPECT_EQ(layout.gather.rows, Rows(static_cast<size_t>(ag), 3 * rs));
    EXPECT_EQ(layout.scatter.rows, Rows(static_cast<size_t>(rs), 3 * ag));
    EXPECT_EQ(layout.scatter.begin.back(), 3 * ag * (rs - 1));
    EXPECT_EQ(ToString(layout.output), ToString(Shape{3 * ag, 7}));
    c.x = {3 * rs + 1, 5};
    LinearLayout uneven;
    EXPECT_EQ(c.Make(&uneven).ok(), ag % rs == 0);
  });
}

// Lists with zeros and primes; every member of a group has the same ones.
TEST(UnevenRowsOfEveryGrid) {
  ForEveryGrid([](Case c) {
    const int ag = c.param.twoDimTPInfo.agDim;
    const int rs = c.param.twoDimTPInfo.rsDim;
    for (int j = 0; j < ag; ++j) c.param.gatherRows.push_back((7 * j + 2 * RsIndex(c, c.rank)) % 5);
    int64_t total = 0;
    for (const int64_t rows : c.param.gatherRows) total += rows;
    c.param.scatterRows.assign(static_cast<size_t>(rs), 0);
    c.param.scatterRows[static_cast<size_t>(rs - 1)] = total;
    const int64_t own = c.param.gatherRows[static_cast<size_t>(AgIndex(c, c.rank))];
    c.x = {own, 5};
    const LinearLayout layout = Made(c);
    EXPECT_EQ(layout.gather.rows, c.param.gatherRows);
    EXPECT_EQ(layout.scatter.rows, c.param.scatterRows);
    EXPECT_EQ(layout.total_rows, total);
    int64_t begin = 0;
    for (size_t j = 0; j < layout.gather.rows.size(); ++j) {
      EXPECT_EQ(layout.gather.begin[j], begin);
      begin += layout.gather.rows[j];
    }
    EXPECT_EQ(layout.output[0], RsIndex(c, c.rank) == rs - 1 ? total : 0);
    c.x = {own + 1, 5};
    Refused(c, ERROR_INVALID_PARAM, "rows: they must be equal");
  });
}

TEST(RowsOfTheOtherTypes) {
  LinearLayout layout = Made(TypeCase(P::LINEAR_ALL_REDUCE, 2, 3));
  EXPECT_EQ(layout.gather.ranks, (std::vector<int>{2}));
  EXPECT_EQ(layout.scatter.ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(layout.scatter.rows, (Rows{6, 6, 6}));
  EXPECT_EQ(layout.scatter.begin, (Rows{0, 0, 0}));
  EXPECT_EQ(ToString(layout.output), std::string("[6, 7]"));

  layout = Made(TypeCase(P::LINEAR_REDUCE_SCATTER, 2, 3));
  EXPECT_EQ(layout.gather.ranks, (std::vector<int>{2}));
  EXPECT_EQ(layout.scatter.index, 2);
  EXPECT_EQ(layout.scatter.begin, (Rows{0, 2, 4}));
  EXPECT_EQ(ToString(layout.output), std::string("[2, 7]"));

  layout = Made(TypeCase(P::ALL_GATHER_LINEAR, 1, 3));
  EXPECT_EQ(layout.gather.ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(layout.gather.index, 1);
  EXPECT_EQ(layout.gather.begin, (Rows{0, 6, 12}));
  EXPECT_EQ(layout.scatter.ranks, (std::vector<int>{1}));
  EXPECT_EQ(ToString(layout.output), std::string("[18, 7]"));
  EXPECT_EQ(ToString(layout.gathered), std::string("[18, 5]"));

  layout = Made(TypeCase(P::PURE_LINEAR, 1, 3));
  EXPECT_EQ(layout.gather.ranks, (std::vector<int>{1}));
  EXPECT_EQ(layout.scatter.ranks, (std::vector<int>{1}));
  EXPECT_EQ(layout.scatter.rows, (Rows{6}));
}

TEST(TheWeightBothWays) {
  Case c;
  c.weight = {1, 7, 5};
  EXPECT_EQ(Made(c).n, 7);
  EXPECT_EQ(Made(c).k, 5);
  c.param.transWeight = false;
  c.weight = {5, 7};
  EXPECT_EQ(Made(c).n, 7);
  EXPECT_FALSE(Made(c).trans_weight);
}

TEST(SizesThatNoInt64Counts) {
  Case c = TypeCase(P::ALL_GATHER_LINEAR, 0, 2);
  c.x = {0, int64_t{1} << 61, 5};
  EXPECT_EQ(Made(c).total_rows, 0);
  c.param.gatherRows = {0, 8};
  Refused(c, ERROR_INVALID_TENSOR_SIZE, "exceeds an int64: split the call");
  c = TypeCase(P::ALL_GATHER_LINEAR, 0, 2);
  c.param.gatherRows = {6, kMax - 6};
  Refused(c, ERROR_INVALID_TENSOR_SIZE, "split the call");
  c.param.gatherRows.clear();
  c.x = {kMax - 1, 5};
  Refused(c, ERROR_INVALID_TENSOR_SIZE, "2 times 9223372036854775806 rows exceed an int64");
}
