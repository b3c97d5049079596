// The variables by which launchers, rank tables and users tell a process its place.
#pragma once

#include <cstdlib>
#include <map>
#include <string>

namespace launchers {

using Variables = std::map<std::string, std::string>;

// Sets these variables and unsets all others, as a launcher would have done.
inline void SetVariables(const Variables& variables) {
  for (const char* name : {"COLLOPS_JOB_ID",
                           "COLLOPS_RANK",
                           "COLLOPS_RANK_SIZE",
                           "COLLOPS_SERVER_ID",
                           "RANK_TABLE_FILE",
                           "RANK_ID",
                           "RANK_SIZE",
                           "DEVICE_ID",
                           "RANK",
                           "WORLD_SIZE",
                           "LOCAL_WORLD_SIZE",
                           "MASTER_ADDR",
                           "MASTER_PORT",
                           "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_RESTART_COUNT",
                           "PMIX_NAMESPACE",
                           "OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "PMI_RANK",
                           "PMI_SIZE",
                           "MPI_LOCALNRANKS",
                           "SLURM_JOB_ID",
                           "SLURM_STEP_ID",
                           "SLURM_PROCID",
                           "SLURM_NTASKS",
                           "SLURM_NNODES",
                           "SLURM_STEP_NUM_NODES",
                           "JOB_TEST_GENERATIONS"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

inline Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

}  // namespace launchers
