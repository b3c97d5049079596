#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "comm/control/tcp/fields.h"
#include "core/status.h"

namespace collops::control::tcp {

// What every rank says of itself at first contact.
struct Row {
  static constexpr size_t kMostHostBytes = 256;
  static constexpr size_t kMostAddressBytes = 128;
  static constexpr size_t kMostBytes = 1024;

  int rank = 0;
  pid_t pid = 0;
  std::string host;     // HostIdentity()
  std::string address;  // where its process accepts connections of other hosts, and the port
  int port = 0;
  std::string bytes;  // of the backend

  // "rank 3 (pid 77 on 10.0.0.2)"
  std::string Who() const { return Concat("rank ", rank, " (pid ", pid, " on ", address, ")"); }

  void Write(FieldWriter* fields) const;
  static Row Read(FieldReader* fields);
};

// The host of each rank, numbered in the order of their first ranks.
std::vector<int> HostsOf(const std::vector<Row>& rows);

// What is sent at first contact, once both ends have proven themselves.
enum class Note {
  kRow = 1,       // one rank
  kProgress = 2,  // rank 0: which ranks are missing
  kWelcome = 3,   // rank 0: all rows were sent
  kVerdict = 4,   // either: first contact ends, and why
  kDone = 5,      // a rank: it is well; rank 0: all are
};

FieldWriter NoteOf(Note note);
Frame VerdictFrame(const Status& reason);
// After the kind of the note.
Status ReadVerdict(FieldReader* fields);

}  // namespace collops::control::tcp
