#include "core/env.h"

#include <cmath>
#include <cstdlib>

namespace collops {
namespace {

Status ReadTimeout(double* timeout_s) {
  const std::string text = GetVariable("COLLOPS_TIMEOUT_S");
  if (text.empty()) return Ok();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  CHECK_ARG(*end == '\0' && std::isfinite(value) && value > 0, ERROR_INVALID_PARAM,
            "COLLOPS_TIMEOUT_S must be a number of seconds above 0, got \"", text, "\"");
  *timeout_s = value;
  return Ok();
}

}  // namespace

std::string GetVariable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

Status Env::Read(Env* env) {
  env->backend = GetVariable("COLLOPS_BACKEND");
  env->job_id = GetVariable("COLLOPS_JOB_ID");
  return ReadTimeout(&env->timeout_s);
}

std::string Env::ReplaceBackend(const std::string& name) const {
  if (backend.empty()) return name;
  if (backend.find('=') == std::string::npos) return backend;
  std::istringstream pairs(backend);
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const size_t equals = pair.find('=');
    if (equals != std::string::npos && pair.substr(0, equals) == name) {
      return pair.substr(equals + 1);
    }
  }
  return name;
}

}  // namespace collops
