#include "comm/control/tcp/row.h"

#include <algorithm>
#include <limits>

#include "comm/control/board.h"

namespace collops::control::tcp {

void Row::Write(FieldWriter* fields) const {
  fields->Number(static_cast<uint64_t>(rank)).Number(static_cast<uint64_t>(pid)).Text(host);
  fields->Text(address).Number(static_cast<uint64_t>(port)).Text(bytes);
}

Row Row::Read(FieldReader* fields) {
  constexpr int kMostPort = 65535;
  Row row;
  row.rank = fields->Int(0, kMaxRanks - 1);
  row.pid = fields->Int(0, std::numeric_limits<int>::max());
  row.host = fields->Text(kMostHostBytes);
  row.address = fields->Text(kMostAddressBytes);
  row.port = fields->Int(0, kMostPort);
  row.bytes = fields->Text(kMostBytes);
  return row;
}

std::vector<int> HostsOf(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  std::vector<int> host_of;
  for (const Row& row : rows) {
    const auto at = std::find(names.begin(), names.end(), row.host);
    host_of.push_back(static_cast<int>(at - names.begin()));
    if (at == names.end()) names.push_back(row.host);
  }
  return host_of;
}

FieldWriter NoteOf(Note note) {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(note));
  return fields;
}

Frame VerdictFrame(const Status& reason) {
  FieldWriter fields = NoteOf(Note::kVerdict);
  fields.Number(static_cast<uint64_t>(reason.code()));
  return fields.Text(reason.message().substr(0, kReasonBytes)).frame();
}

Status ReadVerdict(FieldReader* fields) {
  const auto code = FailureCode(static_cast<int32_t>(fields->Number()));
  return Status(code, fields->Text(kReasonBytes));
}

}  // namespace collops::control::tcp
