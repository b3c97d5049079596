#include "c/collops_c.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "c/groups.h"
#include "collops/operators/plain/connect.h"
#include "collops/operators/plain/plain_calls.h"

namespace collops::c {
namespace {

constexpr int64_t kMostElements = std::numeric_limits<int64_t>::max() / 16;  // of the widest type

thread_local std::string last_error;

// Runs the body of a function, from which no exception leaves.
template <typename Body>
int Reported(const Body& body) noexcept {
  Status status;
  try {
    status = body();
    if (!status.ok()) last_error = status.message();
  } catch (const std::bad_alloc&) {
    last_error.clear();
    return ERROR_OUT_OF_HOST_MEMORY;
  } catch (const std::exception& error) {
    last_error.assign(error.what());
    return ERROR_RT_FAIL;
  }
  return status.code();
}

// A call as C states it.
struct Arguments {
  const void* x;
  void* out;
  collops_dtype dtype;
  const int64_t* sizes = nullptr;
  const int64_t* recv_sizes = nullptr;
  int64_t count = 0;
  collops_op op = COLLOPS_SUM;
  int root = 0;
};

Status ReadDType(const char* method, collops_dtype number, DType* dtype) {
  *dtype = static_cast<DType>(number);
  COLLOPS_CHECK_ARG(number >= 0 && SizeOf(*dtype) > 0, ERROR_INVALID_TENSOR_DTYPE, method,
                    ": dtype ", number, " is no element type: pass one of collops_c.h's, such as ",
                    "COLLOPS_FLOAT32");
  return Ok();
}

Status ReadOp(const char* method, collops_op number, ReduceOp* op) {
  COLLOPS_CHECK_ARG(number >= COLLOPS_SUM && number <= COLLOPS_BXOR, ERROR_INVALID_PARAM, method,
                    ": op must be from 0 (COLLOPS_SUM) to ", COLLOPS_BXOR, " (COLLOPS_BXOR), got ",
                    number);
  *op = static_cast<ReduceOp>(number);
  return Ok();
}

Status ReadSizes(const char* method, const char* label, const int64_t* numbers, int rank_size,
                 Rows* sizes) {
  COLLOPS_CHECK_ARG(numbers != nullptr, ERROR_INVALID_PARAM, method, ": ", label,
                    " is NULL: pass an array of length ", rank_size, ", one number per rank");
  sizes->assign(numbers, numbers + rank_size);
  return CheckSizes(method, label, *sizes, rank_size);
}

Status CheckCount(const char* method, int64_t count) {
  COLLOPS_CHECK_ARG(count >= 0 && count <= kMostElements, ERROR_INVALID_PARAM, method,
                    ": count must be from 0 to ", kMostElements, ", got ", count);
  return Ok();
}

// Fills in the call; `x_count`: elements of x.
Status Read(const Arguments& given, int rank, int rank_size, PlainCall* call, int64_t* x_count) {
  const char* const name = call->name();
  COLLOPS_RETURN_IF_ERROR(ReadDType(name, given.dtype, &call->dtype));
  COLLOPS_RETURN_IF_ERROR(ReadOp(name, given.op, &call->op));
  call->root = given.root;
  if (call->method == PlainCall::kAllReduce || call->method == PlainCall::kReduce ||
      call->method == PlainCall::kBroadcast) {
    COLLOPS_RETURN_IF_ERROR(CheckCount(name, given.count));
    *x_count = given.count;
    call->x.sizes = {given.count};
    return Ok();
  }
  const bool is_to_each = call->method == PlainCall::kAllToAllV;
  const char* const label = is_to_each ? "send_sizes" : "sizes";
  Rows& sizes = call->sizes.emplace();
  COLLOPS_RETURN_IF_ERROR(ReadSizes(name, label, given.sizes, rank_size, &sizes));
  if (is_to_each) {
    COLLOPS_RETURN_IF_ERROR(
        ReadSizes(name, "recv_sizes", given.recv_sizes, rank_size, &call->receives));
  }
  const int64_t own = sizes[static_cast<size_t>(rank)];
  const bool reads_all = is_to_each || call->method == PlainCall::kReduceScatterV;
  call->x.sizes = {reads_all ? SumOf(sizes) : own};
  *x_count = call->x.sizes[0];
  if (call->method == PlainCall::kScatterV) *x_count = rank == given.root ? SumOf(sizes) : 0;
  return Ok();
}

Status CheckArray(const char* method, const char* label, const void* array, int64_t count) {
  COLLOPS_CHECK_ARG(array != nullptr || count == 0, ERROR_INVALID_TENSOR_ADDR, method, ": ", label,
                    " is NULL, and has ", count, " elements");
  return Ok();
}

TensorView ViewOf(DType dtype, int64_t count, const void* data) {
  TensorView view;
  view.desc.dtype = dtype;
  view.desc.shape = {count};
  view.data = const_cast<void*>(data);  // of x, which nobody writes
  return view;
}

Status CheckDevice(const char* method, const Communicator& group) {
  COLLOPS_CHECK_ARG(group.device().kind == DeviceKind::kCpu, ERROR_UNSUPPORTED, method,
                    ": C moves memory of the CPU, and this communicator moves that of ",
                    ToString(group.device()));
  return Ok();
}

// The call's plan and its tensors.
Status Prepare(const Arguments& given, const InUse& use, PlainCall* call,
               std::shared_ptr<PlainCalls::Kept>* kept, PlainTensors* tensors) {
  const Communicator& group = *use.communicator;
  COLLOPS_RETURN_IF_ERROR(CheckDevice(call->name(), group));
  const char* const name = call->name();
  int64_t x_count = 0;
  COLLOPS_RETURN_IF_ERROR(Read(given, group.rank(), group.size(), call, &x_count));
  PlainCalls& calls = use.group->calls;
  *kept = calls.Find(*call);
  if (*kept == nullptr) COLLOPS_RETURN_IF_ERROR(calls.Make(*call, kept));
  tensors->x.view = ViewOf(call->dtype, x_count, given.x);
  tensors->x.numel = x_count;
  if (call->method == PlainCall::kBroadcast) return CheckArray(name, "data", given.x, x_count);
  tensors->out.numel = (*kept)->result[0];
  tensors->out.view = ViewOf(call->dtype, tensors->out.numel, given.out);
  COLLOPS_RETURN_IF_ERROR(CheckArray(name, "x", given.x, x_count));
  return CheckArray(name, "out", given.out, tensors->out.numel);
}

int Run(PlainCall::Method method, const collops_comm* comm, const Arguments& given) noexcept {
  return Reported([&]() -> Status {
    PlainCall call(method);
    InUse use;
    COLLOPS_RETURN_IF_ERROR(Groups::Instance().Find(call.name(), comm, &use));
    Communicator& group = *use.communicator;
    const UserCall number(group.CallOfUser());
    std::shared_ptr<PlainCalls::Kept> kept;
    PlainTensors tensors;
    const Status ready = Prepare(given, use, &call, &kept, &tensors);
    if (ready.ok()) return kept->plan->Run(&group, tensors);
    // The caller's own fault is what it hears of, whatever becomes of the refusal.
    static_cast<void>(group.Refuse(call.name(), ready));
    return ready;
  });
}

// Runs `body` on a communicator; `method` names it in messages.
template <typename Body>
int On(const char* method, const collops_comm* comm, const Body& body) noexcept {
  return Reported([&]() -> Status {
    InUse use;
    COLLOPS_RETURN_IF_ERROR(Groups::Instance().Find(method, comm, &use));
    return body(*use.communicator);
  });
}

// One message; `source` may be null.
int RunMessage(const CallName& name, const collops_comm* comm, Transfer transfer,
               collops_dtype dtype, int* source) noexcept {
  return On(name.called, comm, [&](Communicator& group) -> Status {
    const bool sends = transfer.way == Transfer::kSend;
    const char* const label = sends ? "to" : "from";
    const bool is_any = !sends && transfer.peer == kAnySource;
    COLLOPS_CHECK_ARG(is_any || (transfer.peer >= 0 && transfer.peer < group.size()),
                      ERROR_INVALID_PARAM, name.called, ": ", label, " must be in [0, ",
                      group.size(), "), got ", transfer.peer);
    COLLOPS_CHECK_ARG(transfer.peer != group.rank(), ERROR_INVALID_PARAM, name.called, ": ", label,
                      " is this rank itself, ", transfer.peer, ": pass another rank");
    COLLOPS_CHECK_ARG(transfer.tag >= 0, ERROR_INVALID_PARAM, name.called,
                      ": tag must be at least 0, got ", transfer.tag);
    const UserCall number(group.CallOfUser());
    transfer.method = name.called;
    const auto prepare = [&]() -> Status {
      COLLOPS_RETURN_IF_ERROR(ReadDType(name.called, dtype, &transfer.dtype));
      COLLOPS_RETURN_IF_ERROR(CheckCount(name.called, transfer.elements));
      transfer.bytes = transfer.elements * SizeOf(transfer.dtype);
      COLLOPS_RETURN_IF_ERROR(CheckDevice(name.called, group));
      COLLOPS_RETURN_IF_ERROR(
          CheckArray(name.called, sends ? "x" : "out", transfer.data, transfer.elements));
      return group.Supports(Primitive::kMessages, DType::kUndefined, ReduceOp::kSum);
    };
    const Status ready = prepare();
    if (!ready.ok()) {
      static_cast<void>(group.RefuseMessages(name, &transfer, 1, ready));
      return ready;
    }
    COLLOPS_RETURN_IF_ERROR(group.Messages(name, &transfer, 1));
    if (source != nullptr) *source = transfer.source;
    return Ok();
  });
}

Status CheckPlace(const char* method, const char* label, const void* place) {
  COLLOPS_CHECK_ARG(place != nullptr, ERROR_INVALID_PARAM, method, ": ", label,
                    " is NULL: pass where the result goes");
  return Ok();
}

std::string TextOf(const char* text) {
  return text == nullptr ? "" : text;
}

Status CheckTimeout(const char* method, double timeout_s) {
  COLLOPS_CHECK_ARG(std::isfinite(timeout_s) && timeout_s >= 0, ERROR_INVALID_PARAM, method,
                    ": timeout_s must be a number of seconds, or 0, got ", timeout_s);
  return Ok();
}

// `join`: null if the options have none.
Status ReadOptions(const collops_init_options* given, CommunicatorSpec* spec, std::string* tuning,
                   const char** join) {
  constexpr size_t kFirstSize = offsetof(collops_init_options, join);
  collops_init_options options = COLLOPS_INIT_OPTIONS;
  if (given != nullptr) {
    const size_t size = given->struct_size;
    COLLOPS_CHECK_ARG(size == kFirstSize || size == sizeof(options), ERROR_INVALID_PARAM,
                      "init: struct_size of the options is ", size,
                      ", which no version of this library has: begin with COLLOPS_INIT_OPTIONS");
    std::memcpy(&options, given, size);
  }
  *join = options.join;
  spec->rank = options.rank;
  spec->rank_size = options.rank_size;
  spec->backend = TextOf(options.backend);
  spec->comm_domain = TextOf(options.comm_domain);
  spec->timeout_s = options.timeout_s;
  spec->comm_mode = options.threads != 0 ? COMM_MULTI_THREAD : COMM_MULTI_PROCESS;
  spec->job_id = TextOf(options.job_id);
  spec->meet_at = TextOf(options.meet_at);
  *tuning = TextOf(options.tuning);
  return Ok();
}

}  // namespace
}  // namespace collops::c

using collops::Communicator;
using collops::PlainCall;
using collops::Status;
using collops::Transfer;
namespace c = collops::c;

int collops_abi_version(void) {
  return COLLOPS_ABI_VERSION;
}

const char* collops_last_error(void) {
  return c::last_error.c_str();
}

const char* collops_error_name(int error) {
  return collops::ErrorName(error);
}

int collops_init(const collops_init_options* options, collops_comm** comm) {
  return c::Reported([&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(c::CheckPlace("init", "comm", comm));
    collops::CommunicatorSpec spec;
    std::string tuning;
    const char* join = nullptr;
    COLLOPS_RETURN_IF_ERROR(c::ReadOptions(options, &spec, &tuning, &join));
    std::shared_ptr<Communicator> made;
    if (join == nullptr) {
      COLLOPS_RETURN_IF_ERROR(collops::ConnectGroup(std::move(spec), tuning, &made));
    } else {
      const bool alone = spec.rank < 0 && spec.rank_size < 0 && spec.comm_domain.empty() &&
                         spec.meet_at.empty() && tuning.empty();
      COLLOPS_CHECK_ARG(alone, collops::ERROR_INVALID_PARAM, "init: join is \"", join,
                        "\": leave out rank, rank_size, comm_domain, meet_at and tuning, which the "
                        "group gives its new ranks");
      spec.comm_domain = join;
      COLLOPS_RETURN_IF_ERROR(collops::JoinGroup(std::move(spec), &made));
    }
    *comm = c::Groups::Instance().Keep(made);
    return collops::Ok();
  });
}

int collops_split(collops_comm* comm, int color, int key, collops_comm** part) {
  return c::On("split", comm, [&](Communicator& group) -> Status {
    const collops::UserCall number(group.CallOfUser());
    const Status place = c::CheckPlace("split", "part", part);
    if (!place.ok()) {
      static_cast<void>(group.Refuse("split", place));
      return place;
    }
    std::shared_ptr<Communicator> made;
    COLLOPS_RETURN_IF_ERROR(group.Split(std::max(color, -1), key, &made));
    if (made != nullptr) COLLOPS_RETURN_IF_ERROR(made->Connect());
    *part = made == nullptr ? nullptr : c::Groups::Instance().Keep(made);
    return collops::Ok();
  });
}

int collops_shrink(collops_comm* comm, const int* exclude, int num_excluded, double timeout_s,
                   collops_comm** shrunk) {
  return c::On("shrink", comm, [&](Communicator& group) -> Status {
    COLLOPS_RETURN_IF_ERROR(c::CheckPlace("shrink", "shrunk", shrunk));
    COLLOPS_RETURN_IF_ERROR(c::CheckTimeout("shrink", timeout_s));
    COLLOPS_CHECK_ARG(num_excluded >= 0, collops::ERROR_INVALID_PARAM,
                      "shrink: num_excluded must be >= 0, got ", num_excluded);
    COLLOPS_CHECK_ARG(exclude != nullptr || num_excluded == 0, collops::ERROR_INVALID_PARAM,
                      "shrink: exclude is NULL: pass an array of length ", num_excluded);
    const std::vector<int> ranks(exclude, exclude + num_excluded);
    std::shared_ptr<Communicator> made;
    COLLOPS_RETURN_IF_ERROR(group.Shrink(ranks, timeout_s, &made));
    *shrunk = c::Groups::Instance().Keep(made);
    return collops::Ok();
  });
}

int collops_old_ranks(const collops_comm* comm, int* ranks) {
  return c::On("old_ranks", comm, [&](const Communicator& group) -> Status {
    COLLOPS_RETURN_IF_ERROR(c::CheckPlace("old_ranks", "ranks", ranks));
    const std::vector<int>& old_ranks = group.old_ranks();
    COLLOPS_CHECK_ARG(!old_ranks.empty(), collops::ERROR_INVALID_PARAM,
                      "old_ranks: collops_shrink() has not made this communicator");
    std::copy(old_ranks.begin(), old_ranks.end(), ranks);
    return collops::Ok();
  });
}

int collops_grow(collops_comm* comm, int count, double timeout_s, collops_comm** grown) {
  return c::On("grow", comm, [&](Communicator& group) -> Status {
    const collops::UserCall number(group.CallOfUser());
    Status ready = c::CheckPlace("grow", "grown", grown);
    if (ready.ok()) ready = c::CheckTimeout("grow", timeout_s);
    if (!ready.ok()) {
      static_cast<void>(group.Refuse("grow", ready));
      return ready;
    }
    std::shared_ptr<Communicator> made;
    COLLOPS_RETURN_IF_ERROR(group.Grow(count, timeout_s, &made));
    *grown = c::Groups::Instance().Keep(made);
    return collops::Ok();
  });
}

int collops_close(collops_comm* comm) {
  return c::On("close", comm, [&](Communicator& group) -> Status {
    group.Close(collops::Concat("rank ", group.rank(), " called collops_close()"));
    c::Groups::Instance().Drop(comm);
    return collops::Ok();
  });
}

int collops_abort(collops_comm* comm, const char* reason) {
  return c::On("abort", comm, [&](Communicator& group) -> Status {
    const std::string given = c::TextOf(reason);
    group.Abort(given.empty() ? collops::Concat("rank ", group.rank(), " called collops_abort()")
                              : given);
    return collops::Ok();
  });
}

int collops_rank(const collops_comm* comm, int* rank) {
  return c::On("rank", comm, [&](const Communicator& group) -> Status {
    COLLOPS_RETURN_IF_ERROR(c::CheckPlace("rank", "rank", rank));
    *rank = group.rank();
    return collops::Ok();
  });
}

int collops_size(const collops_comm* comm, int* size) {
  return c::On("size", comm, [&](const Communicator& group) -> Status {
    COLLOPS_RETURN_IF_ERROR(c::CheckPlace("size", "size", size));
    *size = group.size();
    return collops::Ok();
  });
}

int collops_set_timeout(collops_comm* comm, double seconds) {
  return c::On("set_timeout", comm, [&](Communicator& group) -> Status {
    COLLOPS_CHECK_ARG(std::isfinite(seconds) && seconds > 0, collops::ERROR_INVALID_PARAM,
                      "set_timeout: seconds must be a number above 0, got ", seconds);
    group.set_timeout_s(seconds);
    return collops::Ok();
  });
}

int collops_all_gatherv(collops_comm* comm, const void* x, void* out, const int64_t* sizes,
                        collops_dtype dtype) {
  c::Arguments given{x, out, dtype};
  given.sizes = sizes;
  return c::Run(PlainCall::kAllGatherV, comm, given);
}

int collops_reduce_scatterv(collops_comm* comm, const void* x, void* out, const int64_t* sizes,
                            collops_dtype dtype, collops_op op) {
  c::Arguments given{x, out, dtype};
  given.sizes = sizes;
  given.op = op;
  return c::Run(PlainCall::kReduceScatterV, comm, given);
}

int collops_all_to_allv(collops_comm* comm, const void* x, const int64_t* send_sizes, void* out,
                        const int64_t* recv_sizes, collops_dtype dtype) {
  c::Arguments given{x, out, dtype};
  given.sizes = send_sizes;
  given.recv_sizes = recv_sizes;
  return c::Run(PlainCall::kAllToAllV, comm, given);
}

int collops_gatherv(collops_comm* comm, const void* x, void* out, const int64_t* sizes,
                    collops_dtype dtype, int root) {
  c::Arguments given{x, out, dtype};
  given.sizes = sizes;
  given.root = root;
  return c::Run(PlainCall::kGatherV, comm, given);
}

int collops_scatterv(collops_comm* comm, const void* x, void* out, const int64_t* sizes,
                     collops_dtype dtype, int root) {
  c::Arguments given{x, out, dtype};
  given.sizes = sizes;
  given.root = root;
  return c::Run(PlainCall::kScatterV, comm, given);
}

int collops_all_reduce(collops_comm* comm, const void* x, void* out, int64_t count,
                       collops_dtype dtype, collops_op op) {
  c::Arguments given{x, out, dtype};
  given.count = count;
  given.op = op;
  return c::Run(PlainCall::kAllReduce, comm, given);
}

int collops_reduce(collops_comm* comm, const void* x, void* out, int64_t count, collops_dtype dtype,
                   collops_op op, int root) {
  c::Arguments given{x, out, dtype};
  given.count = count;
  given.op = op;
  given.root = root;
  return c::Run(PlainCall::kReduce, comm, given);
}

int collops_broadcast(collops_comm* comm, void* data, int64_t count, collops_dtype dtype,
                      int root) {
  c::Arguments given{data, nullptr, dtype};
  given.count = count;
  given.root = root;
  return c::Run(PlainCall::kBroadcast, comm, given);
}

int collops_barrier(collops_comm* comm) {
  return c::On("barrier", comm, [](Communicator& group) -> Status {
    const collops::UserCall number(group.CallOfUser());
    return group.Barrier();
  });
}

int collops_send(collops_comm* comm, const void* x, int64_t count, collops_dtype dtype, int to,
                 int tag) {
  Transfer transfer;
  transfer.peer = to;
  transfer.tag = tag;
  transfer.elements = count;
  transfer.data = const_cast<void*>(x);  // which a send does not write
  return c::RunMessage({"Send", "send"}, comm, transfer, dtype, nullptr);
}

int collops_recv(collops_comm* comm, void* out, int64_t count, collops_dtype dtype, int from,
                 int tag, int* source) {
  Transfer transfer;
  transfer.way = Transfer::kRecv;
  transfer.peer = from;
  transfer.tag = tag;
  transfer.elements = count;
  transfer.data = out;
  return c::RunMessage({"Recv", "recv"}, comm, transfer, dtype, source);
}
