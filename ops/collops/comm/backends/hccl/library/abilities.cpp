#include "collops/comm/backends/hccl/library/abilities.h"

#include <atomic>
#include <cstring>

#include "collops/core/status.h"
#include "collops/core/trace/log.h"

namespace collops::hccl {
namespace {

bool StartsWith(const std::string& text, const char* begin) {
  return text.compare(0, std::strlen(begin), begin) == 0;
}

// By HCCL's documents: Ascend910 of the first generation and Ascend310 have neither call; Atlas A3
// (Ascend910_93) has both inside one server. A name that is not known is taken for a later SoC that
// has them.
void LimitBySoc(const std::string& soc, bool several_servers, Abilities* abilities) {
  const bool first_910 = StartsWith(soc, "Ascend910") && !StartsWith(soc, "Ascend910B") &&
                         !StartsWith(soc, "Ascend910_");
  const bool first_310 = StartsWith(soc, "Ascend310") && !StartsWith(soc, "Ascend310P");
  const bool a3 = StartsWith(soc, "Ascend910_93");
  if (first_910 || first_310 || (a3 && several_servers)) {
    abilities->all_gather_v = abilities->reduce_scatter_v = false;
    abilities->why_not = Concat("HCCL does not have it on ", soc, a3 ? " on several servers" : "");
  }
}

}  // namespace

Abilities AbilitiesOf(const Api& api, bool several_servers) {
  Abilities abilities;
  const char* const soc = api.get_soc_name();
  LimitBySoc(soc == nullptr ? "" : soc, several_servers, &abilities);
  if (api.all_gather_v == nullptr || api.reduce_scatter_v == nullptr) {
    abilities.why_not = "this libhccl.so does not have it";
  }
  abilities.all_gather_v &= api.all_gather_v != nullptr;
  abilities.reduce_scatter_v &= api.reduce_scatter_v != nullptr;
  return abilities;
}

void WarnOfReplacement(const Abilities& abilities) {
  if (abilities.all_gather_v && abilities.reduce_scatter_v) return;
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  const bool both = !abilities.all_gather_v && !abilities.reduce_scatter_v;
  const char* const what = abilities.all_gather_v       ? "HcclReduceScatterV"
                           : abilities.reduce_scatter_v ? "HcclAllGatherV"
                                                        : "HcclAllGatherV and HcclReduceScatterV";
  Log(LogLevel::kWarning,
      Concat("collops: warning: ", what, both ? " are" : " is",
             " replaced by a broadcast or a reduction per rank, which is slower: ",
             abilities.why_not));
}

}  // namespace collops::hccl
