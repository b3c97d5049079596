#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/core/status.h"
#include "collops/kernels/reduce/leaf_tree.h"

namespace collops::kernels {

// A matrix in a device's memory, of float32, float16 or bfloat16, int8 or int32. Element (i, j) is
// ld * i + j elements behind the first, or ld * j + i if the matrix is a transposed view.
struct DeviceMatrix {
  const void* data = nullptr;
  DType dtype = DType::kUndefined;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t ld = 0;
  bool transposed = false;
};

// What of a device collectives have while a product runs.
struct Beside {
  bool waits = false;       // their blocks may wait there for work that comes after the product
  int multiprocessors = 0;  // that they leave it; 0: not known, or all
};

// How a product is cut in leaves (reduce/leaf_tree.h): it has leaves [begin, end) of `count`, of
// which the first k % count are a column longer.
struct StreamLeaves {
  int64_t count = 0;  // 0: none
  int64_t k = 0;      // of all leaves
  int64_t begin = 0;
  int64_t end = 0;
};

// One step of a computation: c from a and b. What it needs of scratch memory depends on the
// matrices' shapes and types, not on their addresses.
struct StreamStep {
  enum Kind {
    kMultiply,  // c = a * b, summed in float32 and rounded once, or of int8 in int32, modulo 2^32;
                // c has consecutive rows. In `leaves` it is float32: their roots, side by side in
                // each row of `ld` elements. There each leaf becomes what kScale makes of it, but
                // `bias` is added to the first one only
    kConvert,   // c = a
    kAdd,       // c = a + b, rounded once; a `b` of one row is added to every row; `c` may be `a`
    kTreeSum,   // c = sums of float32 that are added by `tree`, + b, rounded once. From `a` on each
                // holder has rows of so many sums side by side, one holder behind the other. `b`
                // is one row, and may be missing
    kScale,     // c = (a + bias) * scale * token, in float32, each step rounded; int32 `a` and
                // `bias` are added modulo 2^32. `bias` and `scale` are a row, or one number,
                // `token` is a column; any of them may be missing. `c` may lie where an `a` of its
                // size does
  };
  Kind kind = kMultiply;
  DeviceMatrix a;
  DeviceMatrix b;
  DeviceMatrix c;
  Beside beside = {};
  DeviceMatrix bias = {};
  DeviceMatrix scale = {};
  DeviceMatrix token = {};
  StreamLeaves leaves = {};
  const std::vector<int64_t>* holders = nullptr;  // how many sums each of them has
  const SumTree* tree = nullptr;                  // of all
};

// Marks in streams, which other streams can wait for. Destroyed when all work that waits for them
// is past.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;
  // A mark behind what is on `stream` now, by its number, and the wait for it.
  virtual Status Put(void* stream, int* mark) = 0;
  virtual Status Wait(void* stream, int mark) = 0;
  // What is put on `then` from now on waits for what is on `first` now.
  Status Order(void* first, void* then) {
    int mark = 0;
    COLLOPS_RETURN_IF_ERROR(Put(first, &mark));
    return Wait(then, mark);
  }
};

// Products and sums on the streams of one device, for operators that compute while collectives run
// on another stream. Knows no ranks; a communicator returns its device's. One thread at a time;
// nothing here waits.
class StreamCompute {
 public:
  virtual ~StreamCompute() = default;

  // Ok, or ERROR_UNSUPPORTED with the reason: the library is missing.
  virtual Status Available() = 0;

  // Does `work` with this device as the thread's current one, as the functions below and the marks
  // want it.
  virtual Status OnDevice(const std::function<Status()>& work) = 0;

  // Whether there are products of int8.
  virtual bool has_int8() const { return false; }

  // Null, or why there are no products in leaves and no sums by a tree.
  virtual const char* leaves_missing() const { return nullptr; }

  // Elements of a product that a device works on at the same time, so that a shorter one takes as
  // long: 128 processors with 128 x 128 each. The ranks cut their calls by it, so it is the same on
  // all devices of a backend.
  virtual int64_t elements_at_once() const { return int64_t{128} * 128 * 128; }

  // Scratch memory begins at multiples of this many bytes.
  virtual int64_t alignment() const = 0;
  // Bytes of scratch memory of a step; ERROR_UNSUPPORTED if the device has no such step.
  virtual Status ScratchBytes(const StreamStep& step, int64_t* bytes) = 0;
  // Puts a step on the stream; the stream uses `scratch` of `bytes` bytes.
  virtual Status Run(const StreamStep& step, void* scratch, int64_t bytes, void* stream) = 0;
  // The same for a product, so that later ones like it, at any address, load nothing: to load code
  // may wait until the device is idle. The contents of `c` are then undefined.
  virtual Status Prepare(const StreamStep& step, void* scratch, int64_t bytes, void* stream) {
    return Run(step, scratch, bytes, stream);
  }
  virtual Status SetZero(void* data, int64_t bytes, void* stream) = 0;
  virtual Status Copy(void* to, const void* from, int64_t bytes, void* stream) = 0;

  // A stream of this device beside the caller's; the same one each time.
  virtual Status SideStream(void** stream) = 0;
  // Ok, or why other streams cannot wait for work of other ranks while `stream` waits for them. The
  // ranks have met.
  virtual Status CheckStream(void* /*stream*/) const { return Ok(); }
  virtual std::shared_ptr<StreamMarks> NewMarks() = 0;

  // Lets go of streams and memory. The calls are past.
  virtual void Release() {}
};

}  // namespace collops::kernels
