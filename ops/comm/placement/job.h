#pragma once

#include <string>

#include "core/status.h"

namespace collops {

// Who started this process as a rank, read from the launcher's variables.
struct Launcher {
  std::string name;    // "run_ranks", "torchrun", "Open MPI", "MPICH or Intel MPI", "Slurm"; or ""
  int rank = -1;       // -1: not said
  int rank_size = -1;  // -1: not said
};

Launcher DetectLauncher();

// What tells this job from every other one on the host: equal in all its ranks, different between
// two jobs that run at once. Never the process group, which two programs of one shell share.
struct JobIdentity {
  std::string id;
  std::string source;  // for messages: which rule gave it
};

// First of COLLOPS_JOB_ID, the launcher's, the process family; else an error that says what to set.
Status FindJobIdentity(JobIdentity* identity);

// Where the ranks of a group meet: the job, or for ranks that are threads this process, whatever
// the launcher says.
Status FindMeetingPlace(bool threads, JobIdentity* identity);

// "job family/2443, from multiprocessing; set COLLOPS_JOB_ID to meet other processes"
std::string DescribeJob(const JobIdentity& job);

// An error if a group of processes has more ranks than the launcher has started for its job.
Status CheckRankSize(int rank_size);

// The identity a host language gives to processes that it started itself (Python: the hash of
// multiprocessing's authkey, equal under fork, spawn and forkserver).
void SetProcessFamily(const std::string& id);

}  // namespace collops
