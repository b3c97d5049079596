#include "collops/comm/control/first_contact/messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/connection.h"

namespace collops::control {

void Row::Write(FieldWriter* fields) const {
  fields->Number(static_cast<uint64_t>(rank)).Number(static_cast<uint64_t>(pid)).Text(host);
  fields->Text(address).Number(static_cast<uint64_t>(port));
}

Row Row::Read(FieldReader* fields) {
  constexpr int kLastPort = 65535;
  Row row;
  row.rank = fields->Int(0, kMaxGroupRanks - 1);
  row.pid = fields->Int(0, std::numeric_limits<int>::max());
  row.host = fields->Text(kMostHostBytes);
  row.address = fields->Text(kMostAddressBytes);
  row.port = fields->Int(0, kLastPort);
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
  constexpr size_t kFullBytes = kMostFrameBytes - 1024;
  std::vector<Frame> frames;
  FieldWriter fields = MessageOf(MessageKind::kRows);
  for (const Row& row : rows) {
    row.Write(&fields);
    if (fields.text().size() < kFullBytes) continue;
    frames.push_back(fields.frame());
    fields = MessageOf(MessageKind::kRows);
  }
  frames.push_back(fields.frame());
  return frames;
}

bool ReadRows(FieldReader* fields, std::vector<Row>* rows) {
  while (fields->valid() && !fields->Done()) rows->push_back(Row::Read(fields));
  return fields->Done();
}

FieldWriter MessageOf(MessageKind kind) {
  FieldWriter fields;
  fields.Number(static_cast<uint64_t>(kind));
  return fields;
}

FieldWriter MessageOf(MessageKind kind, int rank) {
  FieldWriter fields = MessageOf(kind);
  fields.Number(static_cast<uint64_t>(rank));
  return fields;
}

void WriteReason(const Status& reason, FieldWriter* fields) {
  fields->Number(static_cast<uint64_t>(reason.code()));
  fields->Text(reason.message().substr(0, kReasonBytes));
}

Status ReadReason(FieldReader* fields) {
  const auto code = static_cast<int32_t>(fields->Number());
  const std::string text = fields->Text(kReasonBytes);
  return code == NO_ERROR ? Ok() : Status(FailureCode(code), text);
}

Frame VerdictFrame(const Status& reason) {
  FieldWriter fields = MessageOf(MessageKind::kVerdict);
  WriteReason(reason, &fields);
  return fields.frame();
}

// A code that is no error's would turn the end of first contact into a success.
Status ReadVerdict(FieldReader* fields) {
  const auto code = FailureCode(static_cast<int32_t>(fields->Number()));
  return Status(code, fields->Text(kReasonBytes));
}

FieldWriter LocalMessageOf(MessageKind kind) {
  FieldWriter fields;
  fields.Number(kLocalVersion).Number(static_cast<uint64_t>(kind));
  return fields;
}

Frame LocalVerdictFrame(const Status& reason, int rank_size) {
  FieldWriter fields = LocalMessageOf(MessageKind::kVerdict);
  fields.Number(static_cast<uint64_t>(rank_size));
  WriteReason(reason, &fields);
  return fields.frame();
}

MessageKind ReadLocalKind(FieldReader* fields) {
  const uint64_t version = fields->Number();
  if (!fields->valid() || version >> 32 != kLocalMagic) return MessageKind::kNone;
  if (version != kLocalVersion) return MessageKind::kOtherVersion;
  const auto kind = static_cast<MessageKind>(fields->Number());
  return fields->valid() && kind != MessageKind::kOtherVersion ? kind : MessageKind::kNone;
}

bool ReadLocalVerdict(const Frame& frame, Status* reason, int* rank_size) {
  FieldReader fields(frame);
  if (ReadLocalKind(&fields) != MessageKind::kVerdict) return false;
  const int size = fields.Int(0, std::numeric_limits<int>::max());
  *reason = ReadVerdict(&fields);
  if (rank_size != nullptr) *rank_size = size;
  return fields.Done();
}

Status VerdictInMailbox(int mailbox) {
  Frame frame(kMostLocalFrameBytes);
  const ssize_t bytes = recv(mailbox, frame.data(), frame.size(), MSG_PEEK | MSG_DONTWAIT);
  frame.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  Status verdict;
  return ReadLocalVerdict(frame, &verdict) ? verdict : Ok();
}

}  // namespace collops::control
