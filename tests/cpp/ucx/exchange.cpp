// exchange ME BYTES CHUNK_BYTES ROUNDS: this process and another one send each other BYTES in every
// round, both at once, and compare what has arrived. Lines of standard input and output connect
// them: each says its address in hexadecimal and is told the other's; says "ready" and is told
// "go"; says the seconds of each round and is told "end".
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "collops/comm/backends/ucx/engine/chunks.h"
#include "collops/comm/backends/ucx/engine/worker.h"
#include "sanitized.h"
#include "ucx/installed.h"

namespace {

using collops::Deadline;
using collops::Status;
using collops::ucx::Chunking;
using collops::ucx::IncomingChunks;
using collops::ucx::OutgoingChunks;
using collops::ucx::Tag;
using collops::ucx::Watch;
using collops::ucx::Worker;

const double kLimitS = check::Patience(60.0);

[[noreturn]] void Stop(const std::string& why) {
  std::cerr << why << std::endl;
  std::exit(1);
}

void Check(const Status& status) {
  if (!status.ok()) Stop(status.message());
}

std::string ToHex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

std::string FromHex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// The next line of standard input; meanwhile the worker goes on, for the other one's sake.
std::string Hear(Worker* worker) {
  std::string line;
  const Watch watch = {{{STDIN_FILENO, POLLIN, 0}}, [] { return collops::Ok(); }};
  const auto whole = [&] {
    pollfd update = {STDIN_FILENO, POLLIN, 0};
    char byte = 0;
    while (poll(&update, 1, 0) == 1) {
      if (read(STDIN_FILENO, &byte, 1) != 1) Stop("the input has ended");
      if (byte == '\n') return true;
      line += byte;
    }
    return false;
  };
  Check(worker->Until("a line", whole, watch, Deadline::After(kLimitS)));
  return line;
}

std::byte ByteAt(int from, size_t round, size_t position) {
  return static_cast<std::byte>(((position + round + 1) * 0x9e3779b97f4a7c15u >> 40) +
                                static_cast<size_t>(from));
}

struct Exchange {
  Worker* worker;
  int me;
  Chunking chunking;
  std::vector<std::byte> sent;
  std::vector<std::byte> received;

  void Round(uint64_t sequence, const Chunking& cut) {
    const int other = 1 - me;
    const Tag mine = {sequence, me, 0};
    const Tag theirs = {sequence, other, 0};
    OutgoingChunks out(worker, other, mine, theirs, {sent.data(), 0}, cut);
    IncomingChunks in(worker, other, theirs, mine, {received.data(), 0}, cut);
    out.Offer(cut.count());
    const auto done = [&] {
      Check(out.Advance());
      Check(in.Advance());
      return out.done() && in.done();
    };
    Check(worker->Until("a round", done, {}, Deadline::After(kLimitS)));
  }

  void Fill(size_t round) {
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = ByteAt(me, round, i);
  }
  void Compare(size_t round) const {
    for (size_t i = 0; i < received.size(); ++i) {
      if (received[i] != ByteAt(1 - me, round, i)) Stop("byte " + std::to_string(i) + " is wrong");
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) Stop("usage: exchange ME BYTES CHUNK_BYTES ROUNDS");
  if (!ucx_tests::IsThere()) Stop("skipped: no UCX is installed");
  const auto bytes = std::stoll(argv[2]);
  std::unique_ptr<Worker> worker;
  Check(Worker::Create(2, &worker));
  const int me = std::atoi(argv[1]);
  std::cout << ToHex(worker->address()) << std::endl;
  worker->Know(1 - me, FromHex(Hear(worker.get())));
  Check(worker->Connect(1 - me));
  const auto size = static_cast<size_t>(bytes);
  Exchange exchange = {worker.get(),
                       me,
                       {bytes, std::stoll(argv[3]), 0},
                       std::vector<std::byte>(size),
                       std::vector<std::byte>(size)};
  exchange.Round(0, exchange.chunking);  // connects
  std::cout << "ready" << std::endl;
  if (Hear(worker.get()) != "go") Stop("not told to go");
  std::string took;
  const auto rounds = static_cast<size_t>(std::stoll(argv[4]));
  for (size_t round = 1; round <= rounds; ++round) {
    exchange.Fill(round);
    exchange.Round(2 * round, {1, 1, 0});  // both begin together
    const auto begin = Deadline::Clock::now();
    exchange.Round(2 * round + 1, exchange.chunking);
    const std::chrono::duration<double> length = Deadline::Clock::now() - begin;
    exchange.Compare(round);
    took += std::to_string(length.count()) + " ";
  }
  std::cout << took << std::endl;
  if (Hear(worker.get()) != "end") Stop("not told to end");
}
