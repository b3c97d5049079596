#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/placement/rank_table/rank_table.h"
#include "collops/comm/placement/rank_table/table_value.h"

namespace collops::rank_table {

// One reader for each form a table takes. `root` is the whole document, whose status is completed.
Status ReadServerList(const TableValue& root, RankTable* table);  // versions 1.0, 1.1 and 1.2
Status ReadGroupList(const TableValue& root, RankTable* table);   // without a version
Status ReadRankList(const TableValue& root, RankTable* table);    // version 2.0

// Values that may be given once: a second one's error tells where the first one stands.
class Unique {
 public:
  Status Add(const std::string& text, const TableValue& owner, const char* key) {
    const auto [first, added] = places_.emplace(text, owner.path());
    if (added) return Ok();
    return owner.Wrong(".", key, ": \"", text, "\" given twice, first at ", first->second);
  }

 private:
  std::map<std::string, std::string> places_;
};

// Ranks as the table lists them, in any order, until all are known.
class ListedRanks {
 public:
  // Refuses a rank that was listed before.
  Status Add(int64_t number, RankTable::Rank rank, const TableValue& owner);
  // In the order of their numbers, which must be 0 to n-1.
  Status Take(const std::string& file, std::vector<RankTable::Rank>* ranks);

 private:
  struct Listed {
    RankTable::Rank rank;
    std::string path;
  };
  std::map<int64_t, Listed> ranks_;
};

// What no table reaches, so that numbers stay far from their types' limits.
constexpr int64_t kMaxRank = (int64_t{1} << 31) - 2;
constexpr int64_t kMaxDeviceId = 65535;

}  // namespace collops::rank_table
