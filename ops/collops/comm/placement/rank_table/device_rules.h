#pragma once

#include "collops/comm/placement/rank_table/rank_table.h"
#include "collops/core/status.h"

namespace collops {

// HCCL's own rules, which hold for backend hccl alone: device_ip everywhere on several servers,
// valid, unique and of one family; as many devices on each server; a device given once; the ranks
// of a server follow each other.
Status CheckDeviceRules(const RankTable& table);

}  // namespace collops
