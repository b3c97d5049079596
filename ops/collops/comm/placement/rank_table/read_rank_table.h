#pragma once

#include <string>

#include "collops/comm/placement/rank_table/rank_table.h"
#include "collops/core/status.h"

namespace collops {

// Reads a table of version 1.0, 1.1, 1.2, 2.0 or none (group_list). An error gives the file, the
// place in the JSON text, the value and the rule. Waits for nothing, whatever the file is.
Status ReadRankTable(const std::string& path, RankTable* table);

// The same of a text; `path` names it in messages.
Status ParseRankTable(const std::string& text, const std::string& path, RankTable* table);

}  // namespace collops
