#include "collops/comm/control/first_contact/port_messages.h"

#include <limits>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/messages.h"

namespace collops::control {
namespace {

constexpr int kMostPort = 65535;
// In the place of a pid, which is never so large.
constexpr uint64_t kNewsMark = std::numeric_limits<uint64_t>::max();

}  // namespace

Frame PortMessage::frame() const {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(pid)).Number(meeting).Text(address);
  fields.Number(static_cast<uint64_t>(port));
  WriteReason(reason, &fields);
  return fields.frame();
}

bool PortMessage::Read(const Frame& frame, PortMessage* message) {
  FieldReader fields(frame);
  message->pid = fields.Int(0, std::numeric_limits<int>::max());
  message->meeting = fields.Number();
  message->address = fields.Text(Row::kMostAddressBytes);
  message->port = fields.Int(0, kMostPort);
  message->reason = ReadReason(&fields);
  return fields.Done();
}

Frame PortNews::frame() const {
  FieldWriter fields;
  fields.Number(kNewsMark).Number(static_cast<uint64_t>(rank + 1)).Text(where);
  fields.Number(turned_away.size());
  for (const std::string& who : turned_away) fields.Text(who);
  return fields.frame();
}

bool PortNews::Read(const Frame& frame, PortNews* news) {
  FieldReader fields(frame);
  const bool is_news = fields.Number() == kNewsMark;
  news->rank = fields.Int(0, kMaxGroupRanks) - 1;
  news->where = Printable(fields.Text(kMostTextBytes), kMostTextBytes);
  const int texts = fields.Int(0, static_cast<int>(kMostTexts));
  news->turned_away.clear();
  for (int i = 0; i < texts && fields.valid(); ++i) {
    news->turned_away.push_back(Printable(fields.Text(kMostTextBytes), kMostTextBytes));
  }
  return is_news && fields.Done();
}

}  // namespace collops::control
