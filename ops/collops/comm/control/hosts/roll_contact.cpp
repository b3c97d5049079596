// What the ranks of a roll call say to each other, and how one reaches another's listener.

#include <utility>

#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/control/hosts/hosts_roll_call.h"

namespace collops::control {
namespace {

constexpr size_t kMostGroupBytes = 64;
constexpr size_t kMostSetBytes = kMaxGroupRanks / 8;
constexpr double kPauseS = 0.02;

}  // namespace

Frame RollMessage::frame() const {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(kind)).Text(group).Number(static_cast<uint64_t>(rank));
  fields.Text(set).Text(given_up).Number(number);
  WriteReason(reason, &fields);
  return fields.frame();
}

bool RollMessage::Read(const Frame& frame, RollMessage* message) {
  FieldReader fields(frame);
  constexpr int kFirst = static_cast<int>(Kind::kComes);
  constexpr int kLast = static_cast<int>(Kind::kArrived);
  message->kind = static_cast<Kind>(fields.Int(kFirst, kLast));
  message->group = fields.Text(kMostGroupBytes);
  message->rank = fields.Int(0, kMaxGroupRanks - 1);
  message->set = fields.Text(kMostSetBytes);
  message->given_up = fields.Text(kMostSetBytes);
  message->number = fields.Number();
  message->reason = ReadReason(&fields);
  return fields.Done();
}

// One round at the listener of a rank.
Status HostsRollCall::Contact(int rank, RollMessage::Kind as) {
  Attempt& attempt = attempts_[rank];
  if (!attempt.client) {
    if (!attempt.pause.Passed()) return Ok();
    SocketAddress address;
    COLLOPS_CHECK_ARG(ParseNumeric(RowOf(rank).address, RowOf(rank).port, &address),
                      ERROR_PEER_LOST, RowOf(rank).Who(), " has no address");
    const Claim claim = {spec_.domain, kPurpose, spec_.rank, size()};
    attempt.client.emplace(Connection(address), &introduction_.secret, claim);
    const bool cut_off = spec_.ending && spec_.ending(rank) == kCutOff;
    attempt.reach_by = Deadline::After(cut_off ? kReachCutOffS : kReachS);
  }
  Connection& connection = attempt.client->connection();
  if (!attempt.proven) {
    const Proof proof = attempt.client->Step();
    attempt.reached = attempt.reached || connection.state() == ConnectionState::kOpen;
    if (proof == Proof::kRefused) return Refused(rank, &attempt);
    if (!attempt.reached && attempt.reach_by.Passed()) LoseHostOf(rank);
    attempt.proven = proof == Proof::kGiven;
  }
  if (!attempt.proven) return Ok();
  if (!attempt.told) attempt.told = connection.Send(MessageOf(as).frame());
  Frame frame;
  for (int i = 0; i < kMostHeard && !decided_ && connection.Receive(&frame); ++i) {
    RollMessage message;
    if (!RollMessage::Read(frame, &message) || message.group != spec_.group) {
      connection.Break("sent an invalid frame");
      break;
    }
    COLLOPS_RETURN_IF_ERROR(Take(rank, &attempt, message));
  }
  if (!connection.alive()) Drop(&attempt);
  return Ok();
}

// The connection has ended before both were known, or what listens there is another process.
Status HostsRollCall::Refused(int rank, Attempt* attempt) {
  const Connection& connection = attempt->client->connection();
  switch (connection.state()) {
    case ConnectionState::kConnecting:
    case ConnectionState::kOpen:
    case ConnectionState::kRefused:
      gone_.insert(rank);
      return Ok();
    case ConnectionState::kTimedOut:
    case ConnectionState::kUnreachable:
      if (!attempt->reached) LoseHostOf(rank);
      break;
    case ConnectionState::kBroken:
      // This process lacks something: a descriptor, a port.
      if (!attempt->reached) return connection.ended();
      break;
    case ConnectionState::kClosed:
    case ConnectionState::kReset:
      break;
  }
  Drop(attempt);
  return Ok();
}

Status HostsRollCall::Take(int rank, Attempt* attempt, const RollMessage& message) {
  switch (message.kind) {
    case RollMessage::Kind::kHere:
      MarkAnswered(rank);
      lists_[rank] = SetOf(message.set);
      return Ok();
    case RollMessage::Kind::kDecision:
      return Adopt(rank, message);
    case RollMessage::Kind::kRefused:
      return message.reason.ok() ? LeftOut() : message.reason;
    case RollMessage::Kind::kComes:
    case RollMessage::Kind::kLooks:
    case RollMessage::Kind::kArrived:
      break;
  }
  attempt->client->connection().Break("sent an invalid frame");
  return Ok();
}

// The next round tries again.
void HostsRollCall::Drop(Attempt* attempt) {
  *attempt = {};
  attempt->pause = Deadline::After(kPauseS);
}

void HostsRollCall::LoseHostOf(int rank) {
  for (int r = 0; r < size(); ++r) {
    if (r != spec_.rank && RowOf(r).host == RowOf(rank).host) gone_.insert(r);
  }
}

}  // namespace collops::control
