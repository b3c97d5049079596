// A rank that a test leads through first contact step by step.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>

#include "comm/control/tcp/rendezvous.h"
#include "control/tcp/loopback.h"

namespace loopback {

using collops::control::tcp::Application;
using collops::control::tcp::Claim;
using collops::control::tcp::FieldReader;
using collops::control::tcp::FieldWriter;
using collops::control::tcp::Note;
using collops::control::tcp::Proof;
using collops::control::tcp::RendezvousSpec;
using collops::control::tcp::Row;

// A rank that joins as the protocol says, and then waits for what rank 0 says.
class ByHand {
 public:
  explicit ByHand(const RendezvousSpec& spec) : spec_(spec) {
    Await([&] {
      if (!application_) {
        application_.emplace(Connection(At(spec_.host, spec_.port)), &spec_.secret,
                             Claim{spec_.domain, "ranks", spec_.rank, spec_.rank_size});
      }
      const Proof proof = application_->Step();
      if (proof == Proof::kRefused) application_.reset();
      return proof == Proof::kGiven;
    });
    Row row;
    row.rank = spec_.rank;
    row.pid = getpid();
    row.host = "a host";
    row.address = "127.0.0.1";
    FieldWriter fields = NoteOf(Note::kRow);
    row.Write(&fields);
    EXPECT_TRUE(application_->connection().Send(fields.frame()));
  }
  // Until rank 0 says that these ranks are missing: all others have come.
  void AwaitMissing(const std::string& missing) {
    Frame frame;
    Await([&] {
      if (!application_->connection().Receive(&frame)) return false;
      FieldReader fields(frame);
      return fields.Number() == static_cast<uint64_t>(Note::kProgress) &&
             fields.Text(4096) == missing;
    });
  }

 private:
  RendezvousSpec spec_;
  std::optional<Application> application_;
};

}  // namespace loopback
