#pragma once

#include <string>

#include "collops/comm/communicator_spec.h"
#include "collops/core/status.h"

namespace collops {

// Whether the launcher has started ranks on several hosts, as far as its variables say.
enum class Spread { kUnknown, kOneHost, kHosts };

// The launcher that started this process as a rank, read from the launcher's variables.
struct Launcher {
  // "COLLOPS_RANK", "torchrun", "Open MPI", "MPICH or Intel MPI", "Slurm"; or ""
  std::string name;
  int rank = -1;        // -1: not set
  int rank_size = -1;   // -1: not set
  int local_size = -1;  // ranks on this host; -1: not set
  Spread spread = Spread::kUnknown;
};

Launcher DetectLauncher();

// The number in a variable such as RANK_ID; -1 if there is none.
int RankNumber(const char* variable);

// Identifies this job on the host: equal in all its ranks, different in two jobs that run at the
// same time. Never the process group, which two programs of one shell share.
struct JobIdentity {
  std::string id;
  std::string source;        // where the id comes from, for messages
  bool of_one_host = false;  // other hosts of the same job may have another id
};

// The first of COLLOPS_JOB_ID, which may be such a job's NameForOthers(), a launcher's id that is
// the same on all hosts, the digest of the rank table (empty: there is none), MPICH's process, the
// process family; else an error.
Status FindJobIdentity(JobIdentity* identity, const std::string& table_digest = "");

// Where the ranks of a group meet: the job or, if the ranks are threads, this process, whatever the
// launcher says. `job_id`: the job, if the ranks have agreed on it by other means; else empty.
Status FindMeetingPlace(bool threads, const std::string& job_id, const std::string& table_digest,
                        JobIdentity* identity);

// The COLLOPS_JOB_ID with which a process that no launcher started is in this job. Not of one that
// ranks have agreed on, nor of threads.
std::string NameForOthers(const JobIdentity& job);

// Whether the content of a rank table names it: ranks with another one are of another job.
bool IsNamedByTable(const std::string& job_id);

// "job family/2443, from multiprocessing; set COLLOPS_JOB_ID to meet other processes"
std::string DescribeJob(const JobIdentity& job);

// An error if a group of processes has more ranks than the launcher has started for its job, or
// than have joined it since.
Status CheckRankSize(int rank_size, const Voice& voice);
// A group of this job has grown to so many ranks.
void NoteRankSize(int rank_size);

// Sets the id that a host language gives to the processes it has started (Python: the hash of
// multiprocessing's authkey, equal under fork, spawn and forkserver).
void SetProcessFamily(const std::string& id);

}  // namespace collops
