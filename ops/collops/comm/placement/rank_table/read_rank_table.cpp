#include "collops/comm/placement/rank_table/read_rank_table.h"

#include "collops/comm/placement/rank_table/formats.h"
#include "collops/comm/placement/rank_table/table_file.h"
#include "collops/core/json.h"
#include "collops/core/sha256.h"

namespace collops {
namespace rank_table {
namespace {

struct Format {
  const char* version;
  Status (*read)(const TableValue& root, RankTable* table);
};

constexpr Format kFormats[] = {
    {"", ReadGroupList},     {"1.0", ReadServerList}, {"1.1", ReadServerList},
    {"1.2", ReadServerList}, {"2.0", ReadRankList},
};

std::string NameOf(const std::string& path) {
  return Concat("rank table \"", path, "\"");
}

Status ReadVersion(const TableValue& root, const Format** format, std::string* version) {
  version->clear();
  if (root.Has("version")) COLLOPS_RETURN_IF_ERROR(root.Text("version", version));
  for (const Format& row : kFormats) {
    if (*version == row.version) {
      *format = &row;
      return Ok();
    }
  }
  TableValue value;
  COLLOPS_RETURN_IF_ERROR(root.Get("version", &value));
  return value.Wrong(" must be \"1.0\", \"1.1\", \"1.2\" or \"2.0\", or be left out with a ",
                     "group_list, got \"", *version, "\"");
}

Status ReadStatus(const TableValue& root, bool* completed) {
  std::string status;
  COLLOPS_RETURN_IF_ERROR(root.Text("status", &status));
  *completed = status == "completed";
  if (*completed || status == "initializing") return Ok();
  TableValue value;
  COLLOPS_RETURN_IF_ERROR(root.Get("status", &value));
  return value.Wrong(" must be \"completed\" or \"initializing\", got \"", status, "\"");
}

}  // namespace

Status ListedRanks::Add(int64_t number, RankTable::Rank rank, const TableValue& owner) {
  const auto [first, added] = ranks_.emplace(number, Listed{std::move(rank), owner.path()});
  if (added) return Ok();
  return owner.Wrong(".rank_id: \"", number, "\" given twice, first at ", first->second.path);
}

Status ListedRanks::Take(const std::string& file, std::vector<RankTable::Rank>* ranks) {
  int64_t next = 0;
  for (auto& [number, listed] : ranks_) {
    COLLOPS_CHECK_ARG(number == next, ERROR_INVALID_PARAM, file, ": the table lists ",
                      ranks_.size(), " ranks, which must be 0 to ", ranks_.size() - 1, ": rank ",
                      next, " is missing, ", listed.path, ".rank_id is ", number);
    ++next;
    ranks->push_back(std::move(listed.rank));
  }
  return Ok();
}

}  // namespace rank_table

Status ParseRankTable(const std::string& text, const std::string& path, RankTable* table) {
  RankTable read;
  read.path = path;
  read.file = rank_table::NameOf(path);
  read.digest = Hex(Sha256(text));
  Json json;
  COLLOPS_RETURN_IF_ERROR(ParseJson(text, read.file, &json));
  const rank_table::TableValue root(json, read.file);
  COLLOPS_RETURN_IF_ERROR(rank_table::ReadStatus(root, &read.completed));
  const rank_table::Format* format = nullptr;
  // A table that is not complete may lack everything else.
  if (read.completed) {
    COLLOPS_RETURN_IF_ERROR(rank_table::ReadVersion(root, &format, &read.version));
    COLLOPS_RETURN_IF_ERROR(format->read(root, &read));
  }
  *table = std::move(read);
  return Ok();
}

Status ReadRankTable(const std::string& path, RankTable* table) {
  std::string text;
  COLLOPS_RETURN_IF_ERROR(rank_table::ReadTableFile(path, rank_table::NameOf(path), &text));
  return ParseRankTable(text, path, table);
}

}  // namespace collops
