#include "collops/comm/backends/hccl/communicator.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backends/hccl/backend.h"
#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/env.h"
#include "collops/core/process/per_process.h"
#include "collops/core/trace/log.h"

namespace collops::hccl {
namespace {

// Of communicators of the caller, which may be passed in again. The names have theirs inside.
PerProcess<PartNames> names_of_callers;

// The end of a name that does not fit would be lost, and with it what tells two names apart.
std::string Shortened(const std::string& name) {
  constexpr size_t kMost = kCommNameBytes - 1;
  constexpr size_t kHashDigits = 20;
  if (name.size() <= kMost) return name;
  return Concat(name.substr(0, kMost - kHashDigits - 1), "~", std::hash<std::string>()(name));
}

constexpr uint32_t kOfCaller = 0;
constexpr uint32_t kDefaultBufferMb = 200;

// The size of each of a communicator's two buffers: COLLOPS_HCCL_BUFFER_MB, HCCL_BUFFSIZE or
// HCCL's default. What HCCL cannot read as a number is left to it.
Status FindBufferMb(uint32_t* buffer_mb) {
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  *buffer_mb =
      env.hccl_buffer_mb > 0 ? static_cast<uint32_t>(env.hccl_buffer_mb) : kDefaultBufferMb;
  const std::string text = GetVariable("HCCL_BUFFSIZE");
  if (env.hccl_buffer_mb > 0 || text.empty()) return Ok();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *buffer_mb);
  if (error != std::errc() || *end != '\0') *buffer_mb = kConfigNotSet;
  return Ok();
}

// A library without configs gives every communicator the same size.
Status CheckBufferSize(bool has_config) {
  COLLOPS_CHECK_ARG(
      has_config || GetVariable("COLLOPS_HCCL_BUFFER_MB").empty(), ERROR_UNSUPPORTED,
      "backend hccl: COLLOPS_HCCL_BUFFER_MB is set, but this libhccl.so has no sizes ",
      "of single communicators: set HCCL_BUFFSIZE in its place");
  return Ok();
}

// Of all HcclComms that were created here and not destroyed.
std::atomic<int> num_live{0};
std::atomic<int64_t> live_mb{0};

void Count(uint32_t buffer_mb, int sign) {
  num_live += sign;
  if (buffer_mb != kConfigNotSet) live_mb += sign * int64_t{2} * buffer_mb;
}

// Every field as HCCL's own initialisation leaves it, the name, and the size of the buffers, which
// older libraries do not take from HCCL_BUFFSIZE.
CommConfig ConfigOf(const std::string& name, uint32_t buffer_mb) {
  CommConfig config = {};
  config.size = sizeof(CommConfig);
  config.magic = kConfigMagic;
  config.version = kConfigVersion;
  config.buffer_size = buffer_mb;
  config.deterministic = kConfigNotSet;
  config.rdma_traffic_class = kConfigNotSet;
  config.rdma_service_level = kConfigNotSet;
  config.execution_timeout = static_cast<int32_t>(kConfigNotSet);
  config.qos = kConfigNotSet;
  config.symmetric_window_bytes = kDefaultSymmetricWindow;
  Shortened(name).copy(config.name, kCommNameBytes - 1);
  return config;
}

// 0, 1, ... rank_size - 1.
std::vector<int> AllRanks(int rank_size) {
  std::vector<int> ranks(static_cast<size_t>(rank_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A name that is equal on all ranks of the group, for HCCL's logs and profiles.
std::string NameOf(const RootInfo& root_info) {
  const std::string bytes(root_info.internal, kRootInfoBytes);
  return Concat("collops_", std::hash<std::string>()(bytes));
}

}  // namespace

std::string PartNames::Fresh(uint32_t rank, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int before = counts_[{rank, name}]++;
  return before == 0 ? name : Concat(name, " again ", before);
}

Status CommHandle::FromRootInfo(const Api& api, int device, int rank, int rank_size,
                                const RootInfo& root_info, std::shared_ptr<CommHandle>* handle) {
  Comm made = nullptr;
  uint32_t buffer_mb = 0;
  COLLOPS_RETURN_IF_ERROR(FindBufferMb(&buffer_mb));
  COLLOPS_RETURN_IF_ERROR(CheckBufferSize(api.comm_init_root_info_config != nullptr));
  const auto size = static_cast<uint32_t>(rank_size);
  const auto own = static_cast<uint32_t>(rank);
  if (api.comm_init_root_info_config != nullptr) {
    const CommConfig config = ConfigOf(NameOf(root_info), buffer_mb);
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(api, api.comm_init_root_info_config(size, &root_info, own, &config, &made),
                 "HcclCommInitRootInfoConfig"));
  } else {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.comm_init_root_info(size, &root_info, own, &made),
                                     "HcclCommInitRootInfo"));
  }
  handle->reset(new CommHandle(api, device, made, buffer_mb));
  (*handle)->ranks_ = AllRanks(rank_size);
  return Ok();
}

Status CommHandle::FromRankTable(const Api& api, int device, int rank, int rank_size,
                                 const std::string& path, std::shared_ptr<CommHandle>* handle) {
  COLLOPS_CHECK_ARG(
      api.comm_init_cluster_info != nullptr, ERROR_UNSUPPORTED,
      "backend hccl: this libhccl.so has no HcclCommInitClusterInfo, which takes rank tables");
  Comm made = nullptr;
  uint32_t buffer_mb = 0;
  COLLOPS_RETURN_IF_ERROR(FindBufferMb(&buffer_mb));
  const bool has_config = api.comm_init_cluster_info_config != nullptr;
  COLLOPS_RETURN_IF_ERROR(CheckBufferSize(has_config));
  const auto own = static_cast<uint32_t>(rank);
  CommConfig config = ConfigOf("", buffer_mb);
  const Result result = has_config
                            ? api.comm_init_cluster_info_config(path.c_str(), own, &config, &made)
                            : api.comm_init_cluster_info(path.c_str(), own, &made);
  std::string said;
  const Status status = ToStatus(
      api, result, has_config ? "HcclCommInitClusterInfoConfig" : "HcclCommInitClusterInfo", &said);
  // The same number, with this code, is of a table that contradicts the rank or the NPU.
  const bool taken = result == Result::kUnavailable && said.find("EI0014") == std::string::npos;
  handle->reset();
  if (taken) return Ok();
  COLLOPS_RETURN_IF_ERROR(status);
  handle->reset(new CommHandle(api, device, made, buffer_mb));
  (*handle)->ranks_ = AllRanks(rank_size);
  return Ok();
}

std::shared_ptr<CommHandle> CommHandle::OfCaller(const Api& api, int rank_size, Comm comm) {
  std::shared_ptr<CommHandle> handle(new CommHandle(api, -1, comm, kOfCaller));
  handle->ranks_ = AllRanks(rank_size);
  handle->is_callers_ = true;
  return handle;
}

Status CommHandle::Split(const std::shared_ptr<CommHandle>& from, const std::vector<int>& members,
                         int index, const std::string& name, std::shared_ptr<CommHandle>* part) {
  const Api& api = from->api_;
  COLLOPS_CHECK_ARG(
      api.create_sub_comm != nullptr, ERROR_UNSUPPORTED,
      "backend hccl: this libhccl.so has no HcclCreateSubCommConfig, which makes subgroups");
  const std::shared_ptr<CommHandle>& whole = from->whole_ == nullptr ? from : from->whole_;
  std::vector<int> ranks;
  std::vector<uint32_t> numbers;
  for (const int member : members) {
    ranks.push_back(from->ranks_[static_cast<size_t>(member)]);
    numbers.push_back(static_cast<uint32_t>(ranks.back()));
  }
  COLLOPS_CHECK_ARG(
      std::is_sorted(numbers.begin(), numbers.end()), ERROR_UNSUPPORTED,
      "backend hccl: a subgroup of HCCL has the order of the group that it is split off: use ",
      "keys that keep it");
  const bool takes_part = index >= 0;
  Comm whole_comm = whole->comm_;
  PartNames& names = whole->is_callers_ ? names_of_callers.Get() : whole->names_;
  const std::string fresh =
      takes_part ? names.Fresh(numbers[static_cast<size_t>(index)], name) : name;
  uint32_t buffer_mb = 0;
  COLLOPS_RETURN_IF_ERROR(FindBufferMb(&buffer_mb));
  CommConfig config = ConfigOf(fresh, buffer_mb);
  const uint64_t id = takes_part ? std::hash<std::string>()(fresh) >> 33 : kNoSubComm;
  Comm made = nullptr;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api,
               api.create_sub_comm(&whole_comm, static_cast<uint32_t>(numbers.size()),
                                   takes_part ? numbers.data() : nullptr, id,
                                   takes_part ? static_cast<uint32_t>(index) : 0, &config, &made),
               "HcclCreateSubCommConfig"));
  if (!takes_part) return Ok();
  int32_t device = -1;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.get_device(&device), "aclrtGetDevice"));
  part->reset(new CommHandle(api, device, made, buffer_mb));
  (*part)->whole_ = whole;
  (*part)->ranks_ = std::move(ranks);
  return Ok();
}

CommHandle::CommHandle(const Api& api, int device, Comm comm, uint32_t buffer_mb)
    : api_(api),
      device_(device),
      comm_(comm),
      buffer_mb_(buffer_mb),
      owned_(buffer_mb != kOfCaller) {
  if (owned_) Count(buffer_mb_, 1);
}

CommHandle::~CommHandle() {
  if (!owned_) return;
  Count(buffer_mb_, -1);
  const DeviceScope scope(api_, device_);
  // The caller cannot act on an error of this call.
  if (scope.status().ok()) static_cast<void>(api_.comm_destroy(comm_));
}

namespace {

// How long an HcclComm of ours waits for its calls before it is destroyed.
constexpr double kEndS = 2.0;

}  // namespace

HcclCommunicator::HcclCommunicator(std::shared_ptr<control::Control> control, const Api& api,
                                   Comm caller_comm, bool compares)
    : StreamCommunicator(std::move(control), DeviceKind::kNpu, compares, &runtime_),
      api_(api),
      runtime_(api) {
  if (caller_comm != nullptr) caller_comm_ = CommHandle::OfCaller(api, size(), caller_comm);
  auto compute = std::make_unique<AclCompute>(api, device_index());
  compute_ = compute.get();
  SetCompute(std::move(compute));
  adds_in_order_ = !GetVariable("COLLOPS_HCCL_SUMS").empty();
  Env env;
  if (Env::Read(&env).ok()) meets_ = env.hccl_meet;  // an error was reported before
  Begin();
}

Status HcclCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  switch (primitive) {
    case Primitive::kGather:
    case Primitive::kExchange:
    case Primitive::kMessages:
      return Ok();
    case Primitive::kReduce:
      COLLOPS_RETURN_IF_ERROR(FindReductionV(dtype, op, &type, &reduction));
      return CheckReductionV(api_, op);
    case Primitive::kEvenReduce:
      return FindReduction(dtype, op, &type, &reduction);
    case Primitive::kWindows:
      break;
  }
  return Error(ERROR_UNSUPPORTED, "backend hccl has no windows: HCCL reads any NPU memory");
}

Status HcclCommunicator::Connect(std::shared_ptr<CommHandle> handle, Abilities abilities) {
  if (stand_in_ == nullptr) {
    COLLOPS_RETURN_IF_ERROR(AllocateStandIn(api_, &stand_in_));
  }
  WarnOfReplacement(abilities);
  abilities_ = std::move(abilities);
  handle_ = std::move(handle);
  return Ok();
}

Status HcclCommunicator::FindDevice(int* device) const {
  int32_t found = -1;
  const Status status = ToStatus(api_, api_.get_device(&found), "aclrtGetDevice");
  COLLOPS_CHECK_ARG(status.ok(), ERROR_INVALID_PARAM, "no NPU is chosen in this thread: call ",
                    "torch.npu.set_device(n), or aclrtSetDevice, first (", status.message(), ")");
  *device = found;
  return Ok();
}

Status HcclCommunicator::OnDevice(int device, const std::function<void()>& step) const {
  const DeviceScope scope(api_, device);
  if (scope.status().ok()) step();
  return scope.status();
}

Status HcclCommunicator::AsyncError() {
  Result error = Result::kSuccess;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api_, api_.get_comm_async_error(hccl(), &error), "HcclGetCommAsyncError"));
  return ToStatus(api_, error, "HcclGetCommAsyncError");
}

double HcclCommunicator::Patience() const {
  return handle_ != nullptr && handle_->owned() ? kEndS : 0.0;
}

void HcclCommunicator::LetGo(bool past) {
  if (!past && handle_ != nullptr) handle_->Keep();
  // The caller cannot act on an error of this call.
  if (past && stand_in_ != nullptr) static_cast<void>(api_.free(stand_in_));
  stand_in_ = nullptr;
  handle_.reset();
}

namespace {

// The NPUs of this process that have a group of ours by a rank table. Ranks may be threads of one
// process.
class TableGroups {
 public:
  bool Has(int device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !known_[device].expired();
  }

  void Add(int device, const std::shared_ptr<CommHandle>& handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    known_[device] = handle;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::weak_ptr<CommHandle>> known_;
};
PerProcess<TableGroups> table_groups_here;

// Writes to standard error, once per process, that the table does not go to HCCL.
void WarnOfTakenTable(const std::string& file) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  Log(LogLevel::kWarning,
      Concat("collops: ", file, ": the ranks connect by root info: another library, such as ",
             "torch_npu, has passed a rank table to HCCL, which takes one per NPU"));
}

// Not known without a board.
bool OnSeveralServers(control::Control& control, int size) {
  return control.has_board() && control::OnSeveralHosts(control.endpoint().group(), AllRanks(size));
}

}  // namespace

Status HcclCommunicator::FindWhetherToMeet(Stream stream, bool* meets) const {
  bool is_captured = false;
  *meets = meets_ && control().has_board();
  if (*meets) COLLOPS_RETURN_IF_ERROR(FindCapture(stream, &is_captured));
  *meets = *meets && !is_captured;
  return Ok();
}

Status HcclCommunicator::MeetFor(const char* function, const Agreement& agreement, Stream stream) {
  if (compares() || met_.count(function) > 0) return Ok();
  bool meets = false;
  COLLOPS_RETURN_IF_ERROR(FindWhetherToMeet(stream, &meets));
  if (!meets) return Ok();
  Agreement first = agreement.WithoutTerms();
  COLLOPS_RETURN_IF_ERROR(control().Agree(first.EqualText("HCCL's function", function)));
  met_.insert(function);
  return Ok();
}

Status HcclCommunicator::MeetFor(const char* called,
                                 const std::vector<control::Control::PairMark>& pairs,
                                 Stream stream) {
  bool meets = false;
  COLLOPS_RETURN_IF_ERROR(FindWhetherToMeet(stream, &meets));
  std::vector<control::Control::PairMark> first;
  for (const control::Control::PairMark& pair : pairs) {
    if ((met_pairs_[pair.peer] & pair.mine) == 0) first.push_back(pair);
  }
  if (!meets || first.empty()) return Ok();
  COLLOPS_RETURN_IF_ERROR(control().MeetPairs(called, first));
  for (const control::Control::PairMark& pair : first) met_pairs_[pair.peer] |= pair.mine;
  return Ok();
}

Status HcclCommunicator::Settle(const char* function, const Agreement& agreement, Result answer,
                                Stream stream, bool Abilities::* there) {
  const Status own = ToStatus(api_, answer, function);
  if (settled_.count(function) > 0) return own;
  const bool is_there = answer != Result::kNotSupport;
  bool meets = false;
  COLLOPS_RETURN_IF_ERROR(FindWhetherToMeet(stream, &meets));
  if (meets) {
    std::vector<Result> answers(static_cast<size_t>(size()));
    Agreement first = agreement.WithoutTerms();
    COLLOPS_RETURN_IF_ERROR(control().Share(first.EqualText("HCCL's function", function), &answer,
                                            sizeof(answer), answers.data()));
    std::string without;
    int count = 0;
    for (int r = 0; r < size(); ++r) {
      if (answers[static_cast<size_t>(r)] != Result::kNotSupport) continue;
      without += Concat(count++ == 0 ? "" : ", ", r);
    }
    COLLOPS_CHECK_ARG(count == 0 || count == size(), ERROR_RANK_MISMATCH, function, " returned ",
                      static_cast<int32_t>(Result::kNotSupport), " (", Name(Result::kNotSupport),
                      ") on rank ", without, " of ", size(), " ranks, and not on the others");
  }
  if (is_there) {
    if (own.ok()) settled_.insert(function);
    return own;
  }
  abilities_.*there = false;
  abilities_.why_not = own.message();
  WarnOfReplacement(abilities_);
  return Ok();
}

// Where some rank's NPU has a group by a rank table, no rank passes HCCL the table, and `handle`
// stays null.
Status HcclCommunicator::MeetByTable(const Agreement& agreement,
                                     std::shared_ptr<CommHandle>* handle) {
  TableGroups& groups = table_groups_here.Get();
  std::vector<char> all(static_cast<size_t>(size()));
  char taken = groups.Has(device_index()) ? 1 : 0;
  COLLOPS_RETURN_IF_ERROR(control().Share(agreement, &taken, 1, all.data()));
  const auto is_taken = [&all] { return std::find(all.begin(), all.end(), 1) != all.end(); };
  if (is_taken()) return Ok();
  const RankTable& table = *spec().table;
  COLLOPS_RETURN_IF_ERROR(
      CommHandle::FromRankTable(api_, device_index(), rank(), size(), table.path, handle));
  taken = *handle == nullptr ? 1 : 0;
  if (*handle == nullptr) WarnOfTakenTable(table.file);
  COLLOPS_RETURN_IF_ERROR(control().Share(agreement, &taken, 1, all.data()));
  if (is_taken()) {
    handle->reset();
  } else {
    groups.Add(device_index(), *handle);
  }
  return Ok();
}

// Rank 0's goes over the host connection.
Status HcclCommunicator::MeetByRootInfo(const Agreement& agreement,
                                        std::shared_ptr<CommHandle>* handle) {
  RootInfo root_info = {};
  if (rank() == 0) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.get_root_info(&root_info), "HcclGetRootInfo"));
  }
  std::vector<RootInfo> all(static_cast<size_t>(size()));
  COLLOPS_RETURN_IF_ERROR(control().Share(agreement, &root_info, kRootInfoBytes, all.data()));
  return CommHandle::FromRootInfo(api_, device_index(), rank(), size(), all[0], handle);
}

// Connects the ranks by the part that a split made, by the group's rank table, or by a root info.
// The ranks also agree on what HCCL has on their SoCs. In HCCL it waits at most
// HCCL_CONNECT_TIMEOUT.
Status HcclCommunicator::Meet() {
  if (caller_comm_ != nullptr) return Connect(caller_comm_, AbilitiesOf(api_, false));
  const control::GroupSpec& group = spec();
  const auto part = std::static_pointer_cast<PartInSpec>(group.engine_part);
  const bool by_table = part == nullptr && group.table != nullptr;
  Abilities abilities = AbilitiesOf(api_, OnSeveralServers(control(), size()));
  const std::string buffer_mb = GetVariable("COLLOPS_HCCL_BUFFER_MB");
  Agreement agreement(kFirstContact);
  agreement.EqualText("COLLOPS_CHECK", compares() ? "1" : "0")
      .EqualText("COLLOPS_HCCL_MEET", meets_ ? "1" : "0")
      .EqualText("COLLOPS_HCCL_SUMS", adds_in_order_ ? "rank_order" : "not set")
      .EqualText("the way to meet", part != nullptr ? "split"
                                    : by_table      ? "rank table"
                                                    : "root info")
      .EqualText("COLLOPS_HCCL_BUFFER_MB", buffer_mb.c_str())
      .EqualText("HcclAllGatherV", abilities.all_gather_v ? "there" : "missing")
      .EqualText("HcclReduceScatterV", abilities.reduce_scatter_v ? "there" : "missing");
  std::shared_ptr<CommHandle> handle;
  if (part != nullptr) {
    if (control().has_board()) COLLOPS_RETURN_IF_ERROR(control().Agree(agreement));
    handle = std::static_pointer_cast<CommHandle>(*part);
  }
  if (by_table) COLLOPS_RETURN_IF_ERROR(MeetByTable(agreement, &handle));
  if (handle == nullptr) COLLOPS_RETURN_IF_ERROR(MeetByRootInfo(agreement, &handle));
  COLLOPS_RETURN_IF_ERROR(Connect(std::move(handle), std::move(abilities)));
  if (part != nullptr) part->reset();
  return Ok();
}

// HCCL splits a group that is connected, if the keys keep its order; else the subgroup meets by a
// root info of its own, which needs a host connection. What HCCL does not split ends no group.
Status HcclCommunicator::DoSplit(const std::vector<int>& members, int index,
                                 const std::string& name, std::shared_ptr<void>* part) {
  return RunOnDevice("split", [&]() -> Status {
    const bool must = !control().has_board();
    if (must) COLLOPS_RETURN_IF_ERROR(MeetOnce("split"));
    if (!connected()) return Ok();
    std::shared_ptr<CommHandle> made;
    const Status status =
        CommHandle::Split(handle_, members, index, Concat("collops", name), &made);
    if (status.code() == ERROR_UNSUPPORTED && !must) return Ok();
    if (made != nullptr) *part = std::make_shared<PartInSpec>(std::move(made));
    const Status ended = InCall("split", status);
    return status.code() == ERROR_UNSUPPORTED ? control().KeepGroupAfter(ended) : ended;
  });
}

int64_t SharedBytes(int rank_size) {
  return control::Board::Bytes(rank_size);
}

Status Available() {
  const Api* api = nullptr;
  return Load(&api);
}

std::string SocName() {
  const Api* api = nullptr;
  const char* const name = Load(&api).ok() ? api->get_soc_name() : nullptr;
  return name == nullptr ? "" : name;
}

std::shared_ptr<Communicator> Make(std::shared_ptr<control::Control> control, const Api& api,
                                   void* comm, bool compares) {
  return std::make_shared<HcclCommunicator>(std::move(control), api, comm, compares);
}

std::vector<std::pair<std::string, std::string>> ShownFacts() {
  uint32_t mb = 0;
  const Status found = FindBufferMb(&mb);
  const bool known = found.ok() && mb != kConfigNotSet;
  const bool ours = !GetVariable("COLLOPS_HCCL_BUFFER_MB").empty();
  const char* const source = ours                                   ? "COLLOPS_HCCL_BUFFER_MB"
                             : GetVariable("HCCL_BUFFSIZE").empty() ? "HCCL's default"
                                                                    : "HCCL_BUFFSIZE";
  return {{"memory", known ? Concat("2 x ", mb, " MB for each communicator, by ", source)
                           : Concat("by HCCL_BUFFSIZE, which is no number")},
          {"communicators",
           Concat(num_live.load(), " made in this process, with ", live_mb.load(), " MB")}};
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const Api* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&api));
  std::shared_ptr<control::Control> control;
  bool compares = false;
  COLLOPS_RETURN_IF_ERROR(MakeControl(spec, false, &control, &compares));
  *communicator = Make(std::move(control), *api, nullptr, compares);
  return Ok();
}

Status Describe(void* comm, CommunicatorSpec* spec) {
  const Api* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&api));
  uint32_t rank = 0;
  uint32_t rank_size = 0;
  char name[kCommNameBytes + 1] = {};
  COLLOPS_RETURN_IF_ERROR(ToStatus(*api, api->get_rank_id(comm, &rank), "hcclComm: HcclGetRankId"));
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(*api, api->get_rank_size(comm, &rank_size), "hcclComm: HcclGetRankSize"));
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(*api, api->get_comm_name(comm, name), "hcclComm: HcclGetCommName"));
  spec->rank = static_cast<int>(rank);
  spec->rank_size = static_cast<int>(rank_size);
  spec->comm_domain = Concat("hcclComm/", name);
  return Ok();
}

Status Adopt(const CommunicatorSpec& spec, void* comm,
             std::shared_ptr<Communicator>* communicator) {
  const Api* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&api));
  std::shared_ptr<control::Control> control;
  bool compares = false;
  COLLOPS_RETURN_IF_ERROR(MakeControl(spec, true, &control, &compares));
  *communicator = Make(std::move(control), *api, comm, compares);
  return Ok();
}

}  // namespace collops::hccl
