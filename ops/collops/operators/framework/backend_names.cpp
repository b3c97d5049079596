#include "collops/operators/framework/backend_names.h"

#include <algorithm>

#include "collops/comm/backends/backend_table.h"

namespace collops {
namespace {

struct NameRow {
  const char* name;
  BackendNames kind;
};

// What ATB runs on kernels of its own, and we on kAtbEngine.
constexpr NameRow kAtbNames[] = {
    {"lccl", kLcclName}, {"lcoc", kMatrixNames}, {"mc2", kMatrixNames}};
constexpr char kAtbEngine[] = "hccl";

// In the order in which messages list them.
std::vector<std::string> Names(unsigned allowed) {
  std::vector<std::string> names;
  for (const Backend& backend : BackendTable()) {
    if ((allowed & kEngineNames) != 0) names.emplace_back(backend.name);
    if (backend.name != std::string(kAtbEngine)) continue;
    for (const NameRow& row : kAtbNames) {
      if ((allowed & row.kind) != 0) names.emplace_back(row.name);
    }
  }
  return names;
}

bool Has(unsigned allowed, const std::string& name) {
  const std::vector<std::string> names = Names(allowed);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// hccl, nccl, cuda, shm or ucx; each with `quote` around it.
std::string List(unsigned allowed, const char* quote) {
  const std::vector<std::string> names = Names(allowed);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += Concat(i == 0 ? "" : i + 1 < names.size() ? ", " : " or ", quote, names[i], quote);
  }
  return text;
}

Status CheckReplacements(const char* op, const Env& env) {
  for (const BackendReplacement& replacement : env.replacements) {
    const std::string& from = replacement.from;
    COLLOPS_CHECK_ARG(from.empty() || Has(kAllNames, from), ERROR_INVALID_PARAM, op,
                      ": COLLOPS_BACKEND=", env.backend, " replaces the unknown backend \"", from,
                      "\"; use ", List(kEngineNames, ""));
    COLLOPS_CHECK_ARG(Has(kEngineNames, replacement.to), ERROR_INVALID_PARAM, op,
                      ": COLLOPS_BACKEND=", env.backend,
                      from.empty() ? "" : Concat(" replaces \"", from, "\" by"),
                      from.empty() ? " is" : "", " the unknown backend \"", replacement.to,
                      "\"; use ", List(kEngineNames, ""));
  }
  return Ok();
}

}  // namespace

Status CheckBackendName(const char* op, const std::string& name, unsigned allowed) {
  if (Has(allowed, name)) return Ok();
  COLLOPS_CHECK_ARG(!Has(kAllNames, name), ERROR_INVALID_PARAM, op, ": backend \"", name,
                    "\" does not run this operator (nor does it in ATB); pass ",
                    List(allowed, "\""));
  return Error(ERROR_INVALID_PARAM, op, ": unknown backend \"", name, "\"; pass ",
               List(allowed, "\""));
}

std::vector<std::string> KnownBackendNames() {
  return Names(kAllNames);
}

Status ResolveBackend(const char* op, const Env& env, const std::string& name,
                      std::string* backend) {
  COLLOPS_RETURN_IF_ERROR(CheckReplacements(op, env));
  *backend = env.ReplaceBackend(name);
  if (Has(kLcclName | kMatrixNames, *backend)) *backend = env.ReplaceBackend(kAtbEngine);
  return Ok();
}

}  // namespace collops
