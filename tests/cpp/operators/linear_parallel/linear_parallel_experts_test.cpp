// Types 5 and 6: how many rows go where by the table, and what of it is refused.
#include "collops/operators/linear_parallel/experts.h"

#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "check.h"

using namespace collops;

namespace {

using Table = std::vector<int64_t>;

ExpertsLayout Layout(int rank, int places, int tp_size, int64_t experts) {
  ExpertsLayout layout;
  layout.rank = rank;
  layout.rank_size = places * tp_size;
  layout.tp_size = tp_size;
  layout.experts = experts;
  layout.x_rows = layout.output_rows = 1000;
  return layout;
}

std::unique_ptr<ExpertRows> RowsOf(const ExpertsLayout& layout, const Table& tokens) {
  std::unique_ptr<ExpertRows> rows;
  const Status status = ExpertRows::FromTable(layout, {}, tokens, &rows);
  EXPECT_EQ(status.message(), "");
  return rows;
}

std::string Refused(const ExpertsLayout& layout, const Table& tokens, ErrorCode code) {
  std::unique_ptr<ExpertRows> rows;
  Status status = ExpertRows::FromTable(layout, {}, tokens, &rows);
  if (status.ok()) status = rows->CheckFit(layout, {});
  EXPECT_EQ(status.code(), code);
  return status.message();
}

std::vector<int64_t> Listed(const int64_t* numbers, const ExpertsLayout& layout) {
  return {numbers, numbers + layout.rank_size};
}

// 2 places with 2 experts each: place 0 sends 1, 2, 3, 4 rows.
const Table kTokens = {1, 2, 3, 4, 5, 0, 6, 1};

TEST(ExpertRowsGoToTheirExperts) {
  const ExpertsLayout layout = Layout(1, 2, 1, 2);
  const auto rows = RowsOf(layout, kTokens);
  EXPECT_EQ(rows->own(), 12);
  EXPECT_EQ(rows->of_experts(), 14);
  EXPECT_EQ(Listed(rows->to_rank(), layout), (Table{5, 7}));
  EXPECT_EQ(Listed(rows->begin_of(), layout), (Table{0, 5}));
  EXPECT_EQ(Listed(rows->from_rank(), layout), (Table{7, 7}));
  EXPECT_EQ(rows->for_expert(0), 9);
  EXPECT_EQ(rows->for_expert(1), 5);
  EXPECT_EQ(rows->begin_of_expert(1), 9);
  EXPECT_EQ(rows->from(0, 1), 4);
  EXPECT_EQ(rows->begin_from(0, 1), 3);
  EXPECT_EQ(rows->begin_from(1, 1), 6);
}

TEST(ExpertRowsAreTheSameForAllMembersOfAPlace) {
  const ExpertsLayout layout = Layout(2, 2, 2, 2);  // the first member of place 1
  const auto rows = RowsOf(layout, kTokens);
  EXPECT_EQ(rows->own(), 12);
  EXPECT_EQ(rows->of_experts(), 28);
  EXPECT_EQ(Listed(rows->to_rank(), layout), (Table{5, 5, 7, 7}));
  EXPECT_EQ(Listed(rows->begin_of(), layout), (Table{0, 0, 5, 5}));
  EXPECT_EQ(Listed(rows->from_rank(), layout), (Table{7, 7, 7, 7}));
  EXPECT_EQ(rows->begin_of_expert(1), 18);
}

// What rank a sends to b is what b expects of a, and the ranks' blocks cover all rows once.
TEST(ExpertRowsFitTogether) {
  for (const int tp_size : {1, 2, 3}) {
    Table tokens(9 * 2);
    std::iota(tokens.begin(), tokens.end(), 0);
    std::vector<std::unique_ptr<ExpertRows>> all;
    for (int r = 0; r < 3 * tp_size; ++r) all.push_back(RowsOf(Layout(r, 3, tp_size, 2), tokens));
    for (size_t a = 0; a < all.size(); ++a) {
      int64_t covered = 0;
      for (size_t b = 0; b < all.size(); ++b) {
        EXPECT_EQ(all[a]->to_rank()[b], all[b]->from_rank()[a]);
        if (b % static_cast<size_t>(tp_size) != 0) continue;
        EXPECT_EQ(all[a]->begin_of()[b], covered);
        covered += all[a]->to_rank()[b];
      }
      EXPECT_EQ(covered, all[a]->own());
    }
  }
}

TEST(ExpertRowsHaveAHashOfEveryCell) {
  const ExpertsLayout layout = Layout(0, 2, 1, 2);
  const int64_t hash = RowsOf(layout, kTokens)->table_hash();
  for (size_t cell = 0; cell < kTokens.size(); ++cell) {
    Table other = kTokens;
    ++other[cell];
    if (cell > 0) {
      EXPECT_TRUE(RowsOf(layout, other)->table_hash() != hash);
      --other[0];  // the same sum
    }
    EXPECT_TRUE(RowsOf(layout, other)->table_hash() != hash);
  }
}

TEST(ExpertRowsThatDoNotFitAreRefused) {
  ExpertsLayout layout = Layout(1, 2, 1, 2);
  layout.x_rows = 12;
  layout.output_rows = 14;
  EXPECT_TRUE(RowsOf(layout, kTokens)->CheckFit(layout, {}).ok());
  layout.output_rows = 13;
  EXPECT_EQ(Refused(layout, kTokens, ERROR_INVALID_TENSOR_DIM),
            "LinearParallel: rank 1 receives 14 rows by globalTokensPerExpertMatrix but "
            "maxOutputSize is 13");
  layout.x_rows = 11;
  EXPECT_EQ(Refused(layout, kTokens, ERROR_INVALID_TENSOR_DIM),
            "LinearParallel: rank 1 sends 12 rows by globalTokensPerExpertMatrix but x has 11");
  layout.to_experts = false;
  layout.output_rows = 12;
  EXPECT_EQ(
      Refused(layout, kTokens, ERROR_INVALID_TENSOR_DIM),
      "LinearParallel: rank 1 sends back 14 rows by globalTokensPerExpertMatrix but x has 11");
}

TEST(ExpertRowsThatCannotBeCountedAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const ExpertsLayout layout = Layout(0, 2, 2, 1);
  EXPECT_EQ(Refused(layout, {0, 0, -1, 0}, ERROR_INVALID_PARAM),
            "LinearParallel: globalTokensPerExpertMatrix[1][0] must be >= 0, got -1");
  EXPECT_EQ(Refused(layout, {kMost / 2 - 1, 1, 0, 1}, ERROR_INVALID_PARAM),
            "LinearParallel: the sum of globalTokensPerExpertMatrix up to [1][1] exceeds an int64");
}

}  // namespace
