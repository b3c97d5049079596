#pragma once

#include <string>

#include "core/status.h"

namespace collops {

// What the environment says, read anew by every Read(): one place for all variables.
struct Env {
  // COLLOPS_BACKEND: replaces a struct's backend once the struct was validated; one name, or a map
  // "hccl=shm,nccl=shm". Empty: nothing is replaced.
  std::string backend;
  // COLLOPS_JOB_ID: names the job this process belongs to; equal in all ranks of a job. Empty: the
  // launcher says it.
  std::string job_id;
  // COLLOPS_TIMEOUT_S: seconds that a call waits for other ranks.
  double timeout_s = 300.0;

  static Status Read(Env* env);

  // The backend that runs a struct written for `name`.
  std::string ReplaceBackend(const std::string& name) const;
};

// The variable's text, empty when it is not set.
std::string GetVariable(const char* name);

}  // namespace collops
