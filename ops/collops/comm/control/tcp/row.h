#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "collops/comm/control/tcp/fields.h"
#include "collops/core/status.h"

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

// What is sent at first contact: between rank 0 and the rank that speaks for a host, once both ends
// have proven themselves, and between that one and the others of its host.
enum class Note {
  kRow = 1,       // to rank 0: one rank
  kRows = 2,      // from rank 0: some of the rows of all
  kProgress = 3,  // from rank 0: which ranks are missing
  kWelcome = 4,   // from rank 0: all rows were sent
  kVerdict = 5,   // either way: first contact ends, and why
  kDone = 6,      // to rank 0: which rank is well; from rank 0: all are
  kLeft = 7,      // to rank 0: a rank that the sender speaks for has left, and why
  kEnded = 8,     // to rank 0: the process of such a rank has ended
  kSpeaker = 9,   // within a host: who speaks, and at which address the host is reached
  kWaits = 10,    // within a host: what the speaker waits for, and why
};

// The rows of all ranks, in frames of kRows; false if the fields after the kind are not of one.
std::vector<Frame> RowFrames(const std::vector<Row>& rows);
bool ReadRows(FieldReader* fields, std::vector<Row>* rows);

FieldWriter NoteOf(Note note);
// A note of one rank.
FieldWriter NoteOf(Note note, int rank);
Frame VerdictFrame(const Status& reason);
void WriteVerdict(const Status& reason, FieldWriter* fields);
// After the kind of the note.
Status ReadVerdict(FieldReader* fields);

}  // namespace collops::control::tcp
