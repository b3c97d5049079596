// Groups, rows and shapes of LinearParallel: every grid of up to 8 ranks against a plain search.
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

TEST(TheExampleOfTheReference) {
  LinearLayout layout = Made(GridCase(4, 2, 1, 6));
  EXPECT_EQ(layout.gather.ranks, (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(layout.scatter.ranks, (std::vector<int>{2, 6}));
  layout = Made(GridCase(4, 2, 0, 6));
  EXPECT_EQ(layout.gather.ranks, (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(layout.scatter.ranks, (std::vector<int>{6, 7}));
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

TEST(ListsOfTheOtherTypes) {
  Case c = TypeCase(P::LINEAR_REDUCE_SCATTER, 1, 3);
  c.param.scatterRows = {1, 0, 5};
  EXPECT_EQ(ToString(Made(c).output), std::string("[0, 7]"));
  c = TypeCase(P::ALL_GATHER_LINEAR, 1, 3);
  c.param.gatherRows = {4, 6, 0};
  EXPECT_EQ(ToString(Made(c).output), std::string("[10, 7]"));
  c.param.scatterRows = {10};
  Refused(c, ERROR_INVALID_PARAM, "scatterRows must be empty for type 2 (ALL_GATHER_LINEAR)");
  for (const auto type : {P::LINEAR_ALL_REDUCE, P::PURE_LINEAR, P::LINEAR_REDUCE_SCATTER}) {
    c = TypeCase(type, 1, 3);
    c.param.gatherRows = {6, 6, 6};
    Refused(c, ERROR_INVALID_PARAM, "gatherRows must be empty for type");
  }
}

TEST(Batches) {
  Case c = TypeCase(P::LINEAR_ALL_REDUCE, 0, 2);
  c.x = {3, 4, 5};
  EXPECT_EQ(Made(c).total_rows, 12);
  EXPECT_EQ(ToString(Made(c).output), std::string("[3, 4, 7]"));
  c.param.type = P::ALL_GATHER_LINEAR;
  c.param.gatherRows = {3, 5};
  EXPECT_EQ(Made(c).gather.rows, (Rows{12, 20}));
  EXPECT_EQ(ToString(Made(c).output), std::string("[8, 4, 7]"));
  EXPECT_EQ(ToString(Made(c).gathered), std::string("[8, 4, 5]"));
  c = TypeCase(P::LINEAR_REDUCE_SCATTER, 1, 2);
  c.x = {1, 4, 5};  // one matrix: its rows are scattered
  EXPECT_EQ(ToString(Made(c).output), std::string("[1, 2, 7]"));
  EXPECT_EQ(Made(c).scatter.begin, (Rows{0, 2}));
  c.x = {3, 4, 5};
  Refused(c, ERROR_INVALID_TENSOR_DIM,
          "3 rows in dim 0 do not divide by 2 ranks: give scatterRows");
  c.param.scatterRows = {1, 2};
  EXPECT_EQ(ToString(Made(c).output), std::string("[2, 4, 7]"));
  EXPECT_EQ(Made(c).scatter.rows, (Rows{4, 8}));
}

TEST(TheWeightBothWays) {
  Case c;
  c.weight = {1, 7, 5};
  EXPECT_EQ(Made(c).n, 7);
  EXPECT_EQ(Made(c).k, 5);
  c.param.transWeight = false;
  Refused(c, ERROR_INVALID_TENSOR_DIM, "x has k = 5 columns but weight [1, 7, 5] has 7 rows");
  c.weight = {5, 7};
  EXPECT_EQ(Made(c).n, 7);
  EXPECT_FALSE(Made(c).trans_weight);
  c.weight = {2, 5, 7};
  Refused(c, ERROR_INVALID_TENSOR_DIM, "a weight of 3 dims must have 1 matrix in dim 0, got 2");
}

TEST(InvalidGrids) {
  for (const int ag : {0, 1, 2, 3, 4}) {
    Case c = GridCase(ag, 3, 1, 0);
    c.rank_size = 6;
    if (ag == 2) continue;
    Refused(c, ERROR_INVALID_PARAM,
            Concat("twoDimTPInfo.agDim ", ag, " * rsDim 3 must be rankSize 6"));
  }
  Case c = GridCase(65535, 3, 1, 0);
  c.rank_size = 1;
  Refused(c, ERROR_INVALID_PARAM, "must be rankSize 1");
}

TEST(InvalidLists) {
  Case c = GridCase(2, 2, 1, 1);
  c.param.gatherRows = {6, 6, 6};
  Refused(c, ERROR_INVALID_PARAM,
          "gatherRows must have length 2, one per member of the group, got 3");
  c.param.gatherRows = {-1, 6};
  Refused(c, ERROR_INVALID_PARAM, "gatherRows[0] must be >= 0, got -1");
  c.param.gatherRows = {6, 5};
  Refused(c, ERROR_INVALID_PARAM, "gatherRows[1] is 5 but x of this rank 1 has 6 rows");
  c.param.gatherRows = {kMax, 6};
  Refused(c, ERROR_INVALID_PARAM, "the sum of gatherRows up to [1] exceeds an int64");
  c.param.gatherRows = {1, 6};
  Refused(c, ERROR_INVALID_TENSOR_DIM,
          "7 rows in dim 0 do not divide by 2 ranks: give scatterRows");
  c.param.scatterRows = {7};
  Refused(c, ERROR_INVALID_PARAM, "scatterRows must have length 2");
  c.param.scatterRows = {4, 4};
  Refused(c, ERROR_INVALID_PARAM, "scatterRows have a sum of 8 but the gathered x has 7 rows");
  c.param.scatterRows = {kMax, kMax};
  Refused(c, ERROR_INVALID_PARAM, "the sum of scatterRows up to [1]");
  c.param.scatterRows = {8, -1};
  Refused(c, ERROR_INVALID_PARAM, "scatterRows[1] must be >= 0, got -1");
  c = TypeCase(P::LINEAR_REDUCE_SCATTER, 1, 3);
  c.param.scatterRows = {1, 1, 1};
  Refused(c, ERROR_INVALID_PARAM, "scatterRows have a sum of 3 but x has 6 rows");
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

TEST(OfTwoFaultsTheUpperLineIsReported) {
  Case c = GridCase(2, 2, 1, 1);
  c.x = {7, 4};  // neither k nor the rows fit
  c.param.gatherRows = {8, 7};
  Refused(c, ERROR_INVALID_TENSOR_DIM, "x has k = 4 columns but weight [7, 5] has 5 columns");
  c.param.gatherRows = {8, 8};
  Refused(c, ERROR_INVALID_PARAM, "gatherRows[1] is 8");
  c.rank_size = 5;
  Refused(c, ERROR_INVALID_PARAM, "must be rankSize 5");
}
