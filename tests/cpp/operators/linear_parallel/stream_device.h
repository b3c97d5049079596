// A fake device: products and sums on streams over host memory.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/kernels/stream_compute.h"
#include "kernels/half_reference.h"
#include "operators/linear_parallel/linear_call.h"
#include "operators/linear_parallel/stream_queues.h"

namespace stream_device {

using collops::DType;
using collops::Error;
using collops::Ok;
using collops::Status;
using collops::kernels::DeviceMatrix;
using collops::kernels::StreamStep;
using stream_queues::Queues;

// NaN in every type: what was not written is seen in every sum.
constexpr int kPoison = 0xff;

inline void Poison(void* data, int64_t bytes) {
  if (bytes > 0) std::memset(data, kPoison, static_cast<size_t>(bytes));
}

// The values of all patterns of a 16-bit type.
inline const std::vector<float>& Decoded(DType dtype) {
  static std::map<DType, std::vector<float>> tables;
  std::vector<float>& table = tables[dtype];
  for (int pattern = static_cast<int>(table.size()); pattern < 1 << 16; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    table.push_back(half_reference::Read(dtype, reinterpret_cast<const char*>(&bits)));
  }
  return table;
}

// The elements of a matrix, row by row.
inline std::vector<float> Load(const DeviceMatrix& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.columns));
  const std::vector<float>* const decoded =
      matrix.dtype == DType::kFloat32 ? nullptr : &Decoded(matrix.dtype);
  auto to = values.begin();
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.columns; ++j, ++to) {
      const int64_t at = matrix.transposed ? matrix.ld * j + i : matrix.ld * i + j;
      if (decoded == nullptr) {
        *to = static_cast<const float*>(matrix.data)[at];
        continue;
      }
      *to = (*decoded)[static_cast<const uint16_t*>(matrix.data)[at]];
    }
  }
  return values;
}

inline void Store(const DeviceMatrix& matrix, const std::vector<float>& values) {
  auto from = values.begin();
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.columns; ++j, ++from) {
      auto* const to = static_cast<char*>(const_cast<void*>(matrix.data));
      const int64_t at = matrix.ld * i + j;
      half_reference::Write(matrix.dtype, double{*from}, to + at * collops::SizeOf(matrix.dtype));
    }
  }
}

inline std::vector<float> Multiplied(const StreamStep& step) {
  const std::vector<float> a = Load(step.a);
  const std::vector<float> b = Load(step.b);
  const auto columns = static_cast<size_t>(step.c.columns);
  const auto k = static_cast<size_t>(step.a.columns);
  std::vector<float> c(static_cast<size_t>(step.c.rows) * columns);
  for (size_t i = 0; i < static_cast<size_t>(step.c.rows); ++i) {
    for (size_t p = 0; p < k; ++p) {
      for (size_t j = 0; j < columns; ++j) c[i * columns + j] += a[i * k + p] * b[p * columns + j];
    }
  }
  return c;
}

inline void Compute(const StreamStep& step) {
  if (step.kind == StreamStep::kMultiply) return Store(step.c, Multiplied(step));
  std::vector<float> values = Load(step.a);
  if (step.kind == StreamStep::kAdd) {
    const std::vector<float> row = Load(step.b);
    for (size_t i = 0; i < values.size(); ++i) values[i] += row[i % row.size()];
  }
  Store(step.c, values);
}

// How many bytes a step needs: other shapes need other numbers, and smaller ones may need more.
inline int64_t NeededBytes(const StreamStep& step) {
  return (step.a.rows * 37 + step.a.columns * 5 + step.c.columns * 11 + step.kind) % 101 * 8;
}

// What a test changes of a device.
struct Options {
  bool has_float_sums = true;       // float32 products of 16-bit operands
  int ignored_wait = -1;            // the number of a wait that is left out
  int64_t at_once = 4;              // elements_at_once()
  collops::DeviceShare share = {};  // of the ranks
};

class Marks : public collops::kernels::StreamMarks {
 public:
  Marks(Queues* queues, const Options& options, int* num_waits)
      : queues_(queues), options_(options), num_waits_(num_waits) {}
  ~Marks() override { *alive_ = false; }

  Status Put(void* stream, int* mark) override {
    *mark = static_cast<int>(passed_.size());
    passed_.push_back(std::make_shared<bool>(false));
    Queues::Put(stream, {[this_passed = passed_.back(), check = Check()] {
                  *this_passed = true;
                  check();
                }});
    return Ok();
  }
  Status Wait(void* stream, int mark) override {
    if ((*num_waits_)++ == options_.ignored_wait) return Ok();
    Queues::Put(stream,
                {Check(), [passed = passed_[static_cast<size_t>(mark)]] { return *passed; }});
    return Ok();
  }

 private:
  std::function<void()> Check() const {
    return [queues = queues_, alive = alive_] {
      if (!*alive) queues->Complain("a mark was destroyed before its stream was past it");
    };
  }

  Queues* const queues_;
  const Options& options_;
  int* const num_waits_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::vector<std::shared_ptr<bool>> passed_;
};

class Device : public collops::kernels::StreamCompute {
 public:
  Device(Queues* queues, int rank, const Options& options)
      : queues_(queues),
        options_(options),
        caller_(queues->NewStream(rank, false)),
        side_(queues->NewStream(rank, true)) {}

  void* caller() const { return caller_; }
  void* side() const { return side_; }
  int num_waits() const { return num_waits_; }
  int num_steps() const { return num_steps_; }

  Status Available() override { return Ok(); }
  int64_t elements_at_once() const override { return options_.at_once; }
  Status OnDevice(const std::function<Status()>& work) override { return work(); }
  int64_t alignment() const override { return 512; }
  Status ScratchBytes(const StreamStep& step, int64_t* bytes) override {
    const bool widens = step.kind == StreamStep::kMultiply && step.a.dtype != step.c.dtype;
    COLLOPS_CHECK_ARG(!widens || options_.has_float_sums, collops::ERROR_UNSUPPORTED,
                      "no such product");
    *bytes = NeededBytes(step);
    return Ok();
  }
  Status Run(const StreamStep& step, void* scratch, int64_t bytes, void* stream) override {
    int64_t needed = 0;
    COLLOPS_RETURN_IF_ERROR(ScratchBytes(step, &needed));
    COLLOPS_CHECK_ARG(needed <= bytes, collops::ERROR_RT_FAIL, "kind ", step.kind, " of ",
                      step.c.rows, " x ", step.c.columns, " needs ", needed,
                      " bytes of scratch memory, got ", bytes);
    ++num_steps_;
    Queues::Put(stream, {[step, scratch, needed] {
                  Poison(scratch, needed);
                  Compute(step);
                }});
    return Ok();
  }
  Status SetZero(void* data, int64_t bytes, void* stream) override {
    Queues::Put(stream, {[data, bytes] {
                  if (bytes > 0) std::memset(data, 0, static_cast<size_t>(bytes));
                }});
    return Ok();
  }
  Status Copy(void* to, const void* from, int64_t bytes, void* stream) override {
    Queues::Put(stream, {[to, from, bytes] {
                  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
                }});
    return Ok();
  }
  Status SideStream(void** stream) override {
    *stream = side_;
    return Ok();
  }
  std::shared_ptr<collops::kernels::StreamMarks> NewMarks() override {
    return std::make_shared<Marks>(queues_, options_, &num_waits_);
  }

 private:
  Queues* const queues_;
  const Options options_;
  void* const caller_;
  void* const side_;
  int num_waits_ = 0;
  int num_steps_ = 0;
};

}  // namespace stream_device
