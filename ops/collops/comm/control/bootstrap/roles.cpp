#include "collops/comm/control/bootstrap/roles.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace collops::control {
namespace {

uint64_t Fnv1a(const std::string& text, uint64_t hash) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace

// 128 bits of hash, so that two jobs or domains never share a name by accident.
std::string SocketName(const CommunicatorSpec& spec, const JobIdentity& job) {
  // Ranks of different backends do not meet: their shared memory differs.
  const std::string key =
      std::to_string(geteuid()) + '\0' + job.id + '\0' + spec.backend + '\0' + spec.comm_domain;
  char name[64];
  std::snprintf(name, sizeof(name), "collops-%016llx%016llx",
                static_cast<unsigned long long>(Fnv1a(key, 0xcbf29ce484222325ULL)),
                static_cast<unsigned long long>(Fnv1a(key, 0x6c62272e07bb0142ULL)));
  return name;
}

std::unique_ptr<Meeting> Meeting::Create(const CommunicatorSpec& spec, const JobIdentity& job,
                                         int64_t segment_bytes, bool bell) {
  std::unique_ptr<Meeting> meeting;
  if (spec.rank == 0) {
    meeting =
        std::make_unique<MeetingLeader>(spec, job, SocketName(spec, job), segment_bytes, bell);
  } else {
    meeting = std::make_unique<MeetingMember>(spec, job, SocketName(spec, job), segment_bytes);
  }
  meeting->watch_ = spec.watch;
  return meeting;
}

}  // namespace collops::control
