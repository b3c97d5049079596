#include "collops/comm/control/tcp/row.h"

#include <limits>
#include <unordered_map>

#include "collops/comm/control/board.h"
#include "collops/comm/control/tcp/connection.h"

namespace collops::control::tcp {

void Row::Write(FieldWriter* fields) const {
  fields->Number(static_cast<uint64_t>(rank)).Number(static_cast<uint64_t>(pid)).Text(host);
  fields->Text(address).Number(static_cast<uint64_t>(port)).Text(bytes);
}

Row Row::Read(FieldReader* fields) {
  constexpr int kMostPort = 65535;
  Row row;
  row.rank = fields->Int(0, kMaxGroupRanks - 1);
  row.pid = fields->Int(0, std::numeric_limits<int>::max());
  row.host = fields->Text(kMostHostBytes);
  row.address = fields->Text(kMostAddressBytes);
  row.port = fields->Int(0, kMostPort);
  row.bytes = fields->Text(kMostBytes);
  return row;
}

std::vector<int> HostsOf(const std::vector<Row>& rows) {
  std::unordered_map<std::string, int> hosts;
  std::vector<int> host_of;
  host_of.reserve(rows.size());
  for (const Row& row : rows) {
    host_of.push_back(hosts.emplace(row.host, static_cast<int>(hosts.size())).first->second);
  }
  return host_of;
}

std::vector<Frame> RowFrames(const std::vector<Row>& rows) {
  // With one more row it is still no longer than a frame may be.
  constexpr size_t kFullBytes = kMostFrameBytes - 2 * Row::kMostBytes;
  std::vector<Frame> frames;
  FieldWriter fields = NoteOf(Note::kRows);
  for (const Row& row : rows) {
    row.Write(&fields);
    if (fields.text().size() < kFullBytes) continue;
    frames.push_back(fields.frame());
    fields = NoteOf(Note::kRows);
  }
  frames.push_back(fields.frame());
  return frames;
}

bool ReadRows(FieldReader* fields, std::vector<Row>* rows) {
  while (fields->valid() && !fields->Done()) rows->push_back(Row::Read(fields));
  return fields->Done();
}

FieldWriter NoteOf(Note note) {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(note));
  return fields;
}

FieldWriter NoteOf(Note note, int rank) {
  FieldWriter fields = NoteOf(note);
  fields.Number(static_cast<uint64_t>(rank));
  return fields;
}

void WriteVerdict(const Status& reason, FieldWriter* fields) {
  fields->Number(static_cast<uint64_t>(reason.code()));
  fields->Text(reason.message().substr(0, kReasonBytes));
}

Frame VerdictFrame(const Status& reason) {
  FieldWriter fields = NoteOf(Note::kVerdict);
  WriteVerdict(reason, &fields);
  return fields.frame();
}

Status ReadVerdict(FieldReader* fields) {
  const auto code = FailureCode(static_cast<int32_t>(fields->Number()));
  return Status(code, fields->Text(kReasonBytes));
}

}  // namespace collops::control::tcp
