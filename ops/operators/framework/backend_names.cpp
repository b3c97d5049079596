#include "operators/framework/backend_names.h"

namespace collops {
namespace {

struct NameRow {
  const char* name;
  BackendNames kind;
};

// In the order in which messages list them.
constexpr NameRow kTable[] = {
    {"hccl", kEngineNames}, {"lccl", kLcclName},    {"lcoc", kMatrixNames}, {"mc2", kMatrixNames},
    {"nccl", kEngineNames}, {"cuda", kEngineNames}, {"shm", kEngineNames},  {"ucx", kEngineNames},
};

bool Has(unsigned allowed, const std::string& name) {
  for (const NameRow& row : kTable) {
    if ((row.kind & allowed) != 0 && name == row.name) return true;
  }
  return false;
}

std::vector<std::string> Names(unsigned allowed) {
  std::vector<std::string> names;
  for (const NameRow& row : kTable) {
    if ((row.kind & allowed) != 0) names.emplace_back(row.name);
  }
  return names;
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
    CHECK_ARG(from.empty() || Has(kAllNames, from), ERROR_INVALID_PARAM, op,
              ": COLLOPS_BACKEND=", env.backend, " replaces the unknown backend \"", from,
              "\"; use ", List(kEngineNames, ""));
    CHECK_ARG(Has(kEngineNames, replacement.to), ERROR_INVALID_PARAM, op,
              ": COLLOPS_BACKEND=", env.backend,
              from.empty() ? "" : Concat(" replaces \"", from, "\" by"), from.empty() ? " is" : "",
              " the unknown backend \"", replacement.to, "\"; use ", List(kEngineNames, ""));
  }
  return Ok();
}

}  // namespace

Status CheckBackendName(const char* op, const std::string& name, unsigned allowed) {
  if (Has(allowed, name)) return Ok();
  CHECK_ARG(!Has(kAllNames, name), ERROR_INVALID_PARAM, op, ": backend \"", name,
            "\" does not run this operator (nor does it in ATB); pass ", List(allowed, "\""));
  return Error(ERROR_INVALID_PARAM, op, ": unknown backend \"", name, "\"; pass ",
               List(allowed, "\""));
}

std::vector<std::string> KnownBackendNames() {
  return Names(kAllNames);
}

Status ResolveBackend(const char* op, const Env& env, const std::string& name,
                      std::string* backend) {
  RETURN_IF_ERROR(CheckReplacements(op, env));
  *backend = env.ReplaceBackend(name);
  if (Has(kLcclName | kMatrixNames, *backend)) *backend = env.ReplaceBackend("hccl");
  return Ok();
}

}  // namespace collops
