#pragma once

#include <string>
#include <vector>

#include "collops/core/status.h"
#include "collops/core/tuning.h"

namespace collops {

// A struct written for backend `from` (empty: for any) runs on `to`.
struct BackendReplacement {
  std::string from;
  std::string to;
};

// The environment variables of this library; Read() reads them anew.
struct Env {
  std::string backend;                           // COLLOPS_BACKEND
  std::vector<BackendReplacement> replacements;  // parsed from `backend`
  std::string job_id;                            // COLLOPS_JOB_ID
  std::string job_key;                           // COLLOPS_JOB_KEY; must not be printed
  bool check = false;                            // COLLOPS_CHECK
  int port = 29577;                              // COLLOPS_PORT
  int first_port = 0;                            // COLLOPS_PORT_RANGE; 0: not set
  int last_port = 0;                             // likewise
  double timeout_s = 300.0;                      // COLLOPS_TIMEOUT_S
  int num_threads = 0;     // COLLOPS_NUM_THREADS; 0: this process's share of its cores
  int trace = 0;           // COLLOPS_TRACE, if it is a number
  std::string trace_path;  // COLLOPS_TRACE, if it is a file name
  bool fused = true;       // COLLOPS_FUSED
  int hccl_buffer_mb = 0;  // COLLOPS_HCCL_BUFFER_MB; 0: HCCL_BUFFSIZE
  bool hccl_meet = true;   // COLLOPS_HCCL_MEET
  bool sglang = true;      // COLLOPS_SGLANG, which the plug-in reads
  bool vllm = true;        // COLLOPS_VLLM, which the plug-in reads
  Tuning tuning;           // COLLOPS_TUNING

  // An error for a value that is not valid; `env` is then unchanged.
  static Status Read(Env* env);

  // The backend that runs a struct written for `name`.
  std::string ReplaceBackend(const std::string& name) const;
};

// A variable whose value is not valid: what is wrong, and the error of Env::Read, which says so.
struct EnvProblem {
  const char* name;
  std::string fault;
  std::string message;
};

// Every such variable, where Env::Read stops at the first one.
std::vector<EnvProblem> EnvProblems();

// One row of docs/environment.md.
struct EnvVariable {
  const char* name;
  const char* fallback;  // the value if it is not set
  const char* meaning;
};

const std::vector<EnvVariable>& EnvVariables();

// What the name of a trace ends in, and whether a text is such a name.
constexpr const char* kTraceEnding = ".json";
bool IsTracePath(const std::string& text);

// The variable's text, empty if it is not set.
std::string GetVariable(const char* name);

}  // namespace collops
