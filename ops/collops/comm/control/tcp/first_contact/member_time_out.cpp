// What a rank that did not meet the others in time says of it.
#include "collops/comm/control/tcp/first_contact/rendezvous_roles.h"

namespace collops::control::tcp {

std::string RendezvousMember::WhyNotJoined() const {
  const std::string why = approach_.Failure();
  if (!why.empty()) return why;
  if (!contact_.proven()) return contact_.Failure();
  return Concat("the job's rank 0 answers at ", contact_.address().Text(),
                ", but rank 0 of this comm_domain has not said where it is");
}

RendezvousMember::Lack RendezvousMember::Lacks() const {
  if (!missing_.empty()) return {missing_ + " did not connect", ""};
  if (role_ != Role::kSpeaks && !joined_ && !speaker_lacks_.what.empty()) return speaker_lacks_;
  if (role_ == Role::kFollows) return {speaker_name_ + " has not answered", ""};
  if (joined_) return {"rank 0 has not answered", ""};
  if (role_ == Role::kUndecided) {
    return {"rank 0 did not connect", ": the rank that speaks for this host was not found either"};
  }
  if (!introduced_.empty()) {
    return {Concat("rank 0 listens at ", introduced_, ", which this host has not reached"),
            Concat(": ", WhyNotJoined(),
                   ". May the hosts of this job connect to each other's ports "
                   "(net.ipv4.ip_local_port_range)?")};
  }
  return {"rank 0 did not connect",
          Concat(": ", WhyNotJoined(),
                 ". Does it run, in the same job, with this comm_domain and this COLLOPS_PORT?")};
}

Status RendezvousMember::TimedOut(const Deadline& deadline) const {
  const Lack lack = Lacks();
  return Error(ERROR_TIMEOUT, lack.what, " within ", deadline.timeout_s(), " s: first contact of ",
               Place(), lack.why);
}

}  // namespace collops::control::tcp
