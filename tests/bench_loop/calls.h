// A planned call of one operator with its tensors, through the public C++ API alone.
#ifndef COLLOPS_TESTS_BENCH_LOOP_CALLS_H_
#define COLLOPS_TESTS_BENCH_LOOP_CALLS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "collops/core/operation.h"

enum class Kind { kAllGatherV, kReduceScatterV };
enum class Memory { kPlain, kWindow };

// float32, rows shared out 3:5. Owned by one rank; not thread-safe. Run() waits for the other rank.
class Call {
 public:
  Call(Kind kind, Memory memory, int64_t bytes, int rank);

  // Writes this rank's input anew, as a program does between two calls.
  void Rewrite();
  void Run();
  // Whether the output is what it must be, bit for bit; poisons it for the next time.
  bool Check();

 private:
  float Input(int rank, int64_t i) const;
  int64_t Begin(int rank) const { return displs_[static_cast<size_t>(rank)]; }
  void Plan();

  Kind kind_;
  int rank_;
  std::vector<int64_t> counts_;
  std::vector<int64_t> displs_;
  int64_t own_count_;
  int64_t num_inputs_;
  int64_t num_outputs_;
  std::shared_ptr<void> memory_;  // of x
  float* x_;
  std::vector<uint16_t> y_;
  std::unique_ptr<float[]> output_;
  std::unique_ptr<collops::Operation> operation_;
  collops::VariantPack pack_;
  std::vector<std::byte> workspace_;
};

#endif  // COLLOPS_TESTS_BENCH_LOOP_CALLS_H_
