#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace collops {

// What is written for backend `from`, or for any where that is empty, runs on `to`.
struct BackendReplacement {
  std::string from;
  std::string to;
};

// What the environment says: one place for all variables, read anew by every Read().
struct Env {
  std::string backend;                           // COLLOPS_BACKEND
  std::vector<BackendReplacement> replacements;  // the same, read
  std::string job_id;                            // COLLOPS_JOB_ID
  std::string isa;                               // COLLOPS_ISA
  bool check = false;                            // COLLOPS_CHECK
  double timeout_s = 300.0;                      // COLLOPS_TIMEOUT_S
  int num_threads = 0;  // COLLOPS_NUM_THREADS; 0: the cores of this process shared out
  int trace = 0;        // COLLOPS_TRACE
  bool fused = true;    // COLLOPS_FUSED

  // Refuses what cannot be meant; `env` is then unchanged.
  static Status Read(Env* env);

  // The backend that runs a struct written for `name`.
  std::string ReplaceBackend(const std::string& name) const;
};

// One row of docs/environment.md.
struct EnvVariable {
  const char* name;
  const char* fallback;  // what holds when it is not set
  const char* meaning;
};

const std::vector<EnvVariable>& EnvVariables();

// The variable's text, empty when it is not set.
std::string GetVariable(const char* name);

}  // namespace collops
