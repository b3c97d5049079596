#include "collops/comm/control/tcp/first_contact/introduction.h"

#include <limits>

#include "collops/comm/control/board.h"
#include "collops/comm/control/tcp/row.h"

namespace collops::control::tcp {
namespace {

constexpr int kMostPort = 65535;

void WriteReason(const Status& reason, FieldWriter* fields) {
  fields->Number(static_cast<uint64_t>(reason.code()));
  fields->Text(reason.message().substr(0, kReasonBytes));
}

Status ReadReason(FieldReader* fields) {
  const auto code = static_cast<int32_t>(fields->Number());
  const std::string text = fields->Text(kReasonBytes);
  return code == 0 ? Ok() : Status(FailureCode(code), text);
}

}  // namespace

Frame Said::frame() const {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(pid)).Number(meeting).Text(address);
  fields.Number(static_cast<uint64_t>(port));
  WriteReason(reason, &fields);
  return fields.frame();
}

bool Said::Read(const Frame& frame, Said* said) {
  FieldReader fields(frame);
  said->pid = fields.Int(0, std::numeric_limits<int>::max());
  said->meeting = fields.Number();
  said->address = fields.Text(Row::kMostAddressBytes);
  said->port = fields.Int(0, kMostPort);
  said->reason = ReadReason(&fields);
  return fields.Done();
}

Frame RegisteredFrame() {
  return FieldWriter().Number(static_cast<uint64_t>(Answer::kRegistered)).frame();
}

Frame MeetAtFrame(const std::string& address, int port) {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(Answer::kMeetAt)).Text(address);
  return fields.Number(static_cast<uint64_t>(port)).frame();
}

Frame RefusalFrame(const Status& reason) {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(Answer::kVerdict));
  WriteReason(reason, &fields);
  return fields.frame();
}

bool Told::Read(const Frame& frame, Told* told) {
  FieldReader fields(frame);
  told->answer = static_cast<Answer>(fields.Number());
  switch (told->answer) {
    case Answer::kRegistered:
      return fields.Done();
    case Answer::kMeetAt:
      told->address = fields.Text(Row::kMostAddressBytes);
      told->port = fields.Int(0, kMostPort);
      return fields.Done();
    case Answer::kVerdict:
      told->reason = ReadReason(&fields);
      return fields.Done() && !told->reason.ok();
  }
  return false;
}

}  // namespace collops::control::tcp
