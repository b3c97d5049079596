#include "collops/comm/placement/rank_table.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collops/core/json.h"
#include "collops/core/sha256.h"
#include "collops/core/status.h"

namespace collops {

bool ParseAddress(const std::string& text, HostAddress* address) {
  for (const auto& [kind, size] : {std::pair(AF_INET, 4), std::pair(AF_INET6, 16)}) {
    char bytes[16];
    if (inet_pton(kind, text.c_str(), bytes) != 1) continue;
    address->assign(bytes, static_cast<size_t>(size));
    return true;
  }
  return false;
}

namespace rank_table {

// One value of a rank table and its place in the text, which every error names:
// rank table "hccl.json": server_list[1].device[0].rank_id must be ..., got "x".
// A view: valid as long as the JSON document.
class TableValue {
 public:
  static constexpr size_t kName = 64;
  static constexpr size_t kLongText = 1024;

  TableValue() = default;
  TableValue(const Json& json, std::string file) : json_(&json), file_(std::move(file)) {}

  const std::string& path() const { return path_; }
  bool Has(const char* key) const;

  // The member called `key`, which must be there.
  Status Get(const char* key, TableValue* member) const;
  // The entries of the list called `key`, which must have at least one.
  Status List(const char* key, std::vector<TableValue>* entries) const;

  // Members that are strings, as HCCL wants all of versions 1.0 to 1.2.
  Status Text(const char* key, std::string* text, size_t longest = kName) const;
  Status OptionalText(const char* key, std::string* text, size_t longest = kName) const;
  // A string of decimal digits, or a JSON number where `digits` is false (version 2.0).
  Status Number(const char* key, int64_t lowest, int64_t highest, int64_t* number,
                bool digits = true) const;
  // A member that says how long a list is, if it is there.
  Status Count(const char* key, size_t length, const char* list, bool digits = true) const;

  // An error about this value as a whole: file, place, then the parts.
  template <typename... Parts>
  Status Wrong(const Parts&... parts) const {
    return Error(ERROR_INVALID_PARAM, file_, ": ", path_, parts...);
  }

 private:
  TableValue(const Json& json, std::string file, std::string path)
      : json_(&json), file_(std::move(file)), path_(std::move(path)) {}
  std::string PathOf(const char* key) const;
  Status MustBe(const std::string& rule) const;

  const Json* json_ = nullptr;
  std::string file_;
  std::string path_;
};

// Values that may be given once: a second one's error tells where the first one stands.
class Unique {
 public:
  Status Add(const std::string& text, const TableValue& owner, const char* key) {
    const auto [first, added] = places_.emplace(text, owner.path());
    if (added) return Ok();
    return owner.Wrong(".", key, ": \"", text, "\" given twice, first at ", first->second);
  }

 private:
  std::map<std::string, std::string> places_;
};

// Ranks as the table lists them, in any order, until all are known.
class ListedRanks {
 public:
  // Refuses a rank that was listed before.
  Status Add(int64_t number, RankTable::Rank rank, const TableValue& owner) {
    const auto [first, added] = ranks_.emplace(number, Listed{std::move(rank), owner.path()});
    if (added) return Ok();
    return owner.Wrong(".rank_id: \"", number, "\" given twice, first at ", first->second.path);
  }
  // In the order of their numbers, which must be 0 to n-1.
  Status Take(const std::string& file, std::vector<RankTable::Rank>* ranks) {
    int64_t next = 0;
    for (auto& [number, listed] : ranks_) {
      COLLOPS_CHECK_ARG(number == next, ERROR_INVALID_PARAM, file, ": the table lists ",
                        ranks_.size(), " ranks, which must be 0 to ", ranks_.size() - 1, ": rank ",
                        next, " is missing, ", listed.path, ".rank_id is ", number);
      ++next;
      ranks->push_back(std::move(listed.rank));
    }
    return Ok();
  }

 private:
  struct Listed {
    RankTable::Rank rank;
    std::string path;
  };
  std::map<int64_t, Listed> ranks_;
};

// What no table reaches, so that numbers stay far from their types' limits.
constexpr int64_t kMaxRank = (int64_t{1} << 31) - 2;
constexpr int64_t kMaxDeviceId = 65535;

namespace {

bool IsDigits(const std::string& text) {
  return !text.empty() && text.size() <= 18 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Bytes below the space, such as NUL, are in no name or address.
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; });
}

struct Device {
  std::string server;
  RankTable::Rank rank;
};

Status ReadInstance(const TableValue& instance, int64_t* device_count,
                    std::vector<Device>* devices) {
  Device device;
  COLLOPS_RETURN_IF_ERROR(instance.Text("pod_name", &device.rank.pod_name));
  COLLOPS_RETURN_IF_ERROR(instance.Text("server_id", &device.server));
  std::vector<TableValue> entries;
  COLLOPS_RETURN_IF_ERROR(instance.List("devices", &entries));
  for (const TableValue& entry : entries) {
    int64_t device_id = 0;
    COLLOPS_RETURN_IF_ERROR(entry.Number("device_id", 0, kMaxDeviceId, &device_id));
    COLLOPS_RETURN_IF_ERROR(
        entry.OptionalText("device_ip", &device.rank.device_ip, TableValue::kLongText));
    device.rank.device_id = static_cast<int>(device_id);
    devices->push_back(device);
  }
  *device_count += static_cast<int64_t>(entries.size());
  return Ok();
}

Status ReadGroup(const TableValue& group, std::vector<Device>* devices) {
  std::vector<TableValue> instances;
  COLLOPS_RETURN_IF_ERROR(group.List("instance_list", &instances));
  COLLOPS_RETURN_IF_ERROR(group.Count("instance_count", instances.size(), "instance_list"));
  int64_t device_count = 0;
  for (const TableValue& instance : instances) {
    COLLOPS_RETURN_IF_ERROR(ReadInstance(instance, &device_count, devices));
  }
  if (!group.Has("device_count")) return Ok();
  int64_t promised = 0;
  COLLOPS_RETURN_IF_ERROR(group.Number("device_count", 0, INT64_MAX, &promised));
  if (promised == device_count) return Ok();
  return group.Wrong(".device_count is ", promised, ", but the instances have ", device_count,
                     " devices");
}

constexpr const char* kSuperPods = "1.2";
constexpr const char* kNumbers = "2.0";
constexpr bool kDigits = false;  // numbers of version 2.0 are JSON numbers

Status CheckOneOf(const TableValue& owner, const char* key, const std::vector<std::string>& allowed,
                  std::string* text) {
  COLLOPS_RETURN_IF_ERROR(owner.Text(key, text));
  if (std::find(allowed.begin(), allowed.end(), *text) != allowed.end()) return Ok();
  std::string list;
  for (const std::string& name : allowed) list += (list.empty() ? "\"" : ", \"") + name + "\"";
  return owner.Wrong(".", key, " must be one of ", list, ", got \"", *text, "\"");
}

// The first one stays.
void Note(const Status& fault, RankTable* table) {
  if (table->format_fault.ok()) table->format_fault = fault;
}

Status CheckAddress(const TableValue& entry, RankTable::Rank* rank) {
  std::string type;
  std::string address;
  COLLOPS_RETURN_IF_ERROR(entry.Text("addr_type", &type));
  COLLOPS_RETURN_IF_ERROR(entry.Text("addr", &address, TableValue::kLongText));
  if (rank->device_ip.empty() && (type == "IPV4" || type == "IPV6")) rank->device_ip = address;
  return Ok();
}

// Layer 0 is the innermost network: the ranks of one server share its instance.
Status ReadLevel(const TableValue& level, RankTable* table, std::string* server,
                 RankTable::Rank* rank) {
  int64_t layer = 0;
  std::string instance;
  std::string type;
  COLLOPS_RETURN_IF_ERROR(level.Number("net_layer", 0, 7, &layer, kDigits));
  COLLOPS_RETURN_IF_ERROR(level.Text("net_instance_id", &instance, TableValue::kLongText));
  Note(CheckOneOf(level, "net_type", {"TOPO_FILE_DESC", "CLOS"}, &type), table);
  if (layer == 0) *server = instance;
  std::vector<TableValue> addresses;
  COLLOPS_RETURN_IF_ERROR(level.List("rank_addr_list", &addresses));
  for (const TableValue& address : addresses) COLLOPS_RETURN_IF_ERROR(CheckAddress(address, rank));
  return Ok();
}

int ServerCalled(const std::string& id, RankTable* table) {
  const auto found = std::find_if(table->servers.begin(), table->servers.end(),
                                  [&id](const RankTable::Server& s) { return s.id == id; });
  const auto index = found - table->servers.begin();
  if (found == table->servers.end()) table->servers.push_back({id, "", ""});
  return static_cast<int>(index);
}

Status ReadRank(const TableValue& entry, RankTable* table, ListedRanks* ranks) {
  int64_t number = 0;
  int64_t local_id = 0;
  int64_t device_id = 0;
  COLLOPS_RETURN_IF_ERROR(entry.Number("rank_id", 0, kMaxRank, &number, kDigits));
  COLLOPS_RETURN_IF_ERROR(entry.Number("local_id", 0, kMaxDeviceId, &local_id, kDigits));
  COLLOPS_RETURN_IF_ERROR(entry.Number("device_id", 0, kMaxDeviceId, &device_id, kDigits));
  std::vector<TableValue> levels;
  COLLOPS_RETURN_IF_ERROR(entry.List("level_list", &levels));
  RankTable::Rank rank;
  rank.device_id = static_cast<int>(device_id);
  std::string server;
  for (const TableValue& level : levels) {
    COLLOPS_RETURN_IF_ERROR(ReadLevel(level, table, &server, &rank));
  }
  if (server.empty()) return entry.Wrong(".level_list has no entry with net_layer 0");
  rank.server = ServerCalled(server, table);
  return ranks->Add(number, std::move(rank), entry);
}

Status CheckPort(const TableValue& owner, const char* key) {
  int64_t port = 0;
  return owner.Has(key) ? owner.Number(key, 1, 65535, &port) : Ok();
}

Status ReadDevice(const TableValue& device, RankTable::Rank rank, RankTable* table,
                  ListedRanks* ranks) {
  int64_t device_id = 0;
  int64_t number = 0;
  COLLOPS_RETURN_IF_ERROR(device.Number("device_id", 0, kMaxDeviceId, &device_id));
  COLLOPS_RETURN_IF_ERROR(device.OptionalText("device_ip", &rank.device_ip, TableValue::kLongText));
  COLLOPS_RETURN_IF_ERROR(device.Number("rank_id", 0, kMaxRank, &number));
  for (const char* port : {"device_port", "host_port", "backup_device_port", "device_vnic_port"}) {
    COLLOPS_RETURN_IF_ERROR(CheckPort(device, port));
  }
  if (table->version == kSuperPods) {
    int64_t super_device_id = 0;
    const Status read = device.Number("super_device_id", 0, INT64_MAX, &super_device_id);
    if (device.Has("super_device_id")) {
      COLLOPS_RETURN_IF_ERROR(read);
      rank.super_device_id = std::to_string(super_device_id);
    }
    Note(read, table);
  }
  rank.device_id = static_cast<int>(device_id);
  return ranks->Add(number, std::move(rank), device);
}

Status ReadServer(const TableValue& entry, RankTable* table, Unique* ids, ListedRanks* ranks) {
  RankTable::Server server;
  COLLOPS_RETURN_IF_ERROR(entry.Text("server_id", &server.id));
  COLLOPS_RETURN_IF_ERROR(ids->Add(server.id, entry, "server_id"));
  COLLOPS_RETURN_IF_ERROR(entry.OptionalText("host_ip", &server.host_ip));
  HostAddress address;
  if (!server.host_ip.empty() && !ParseAddress(server.host_ip, &address)) {
    return entry.Wrong(".host_ip must be an IPv4 or IPv6 address, got \"", server.host_ip, "\"");
  }
  COLLOPS_RETURN_IF_ERROR(entry.OptionalText("container_ip", &server.container_ip));
  RankTable::Rank rank;
  rank.server = static_cast<int>(table->servers.size());
  table->servers.push_back(std::move(server));
  std::vector<TableValue> devices;
  COLLOPS_RETURN_IF_ERROR(entry.List("device", &devices));
  for (const TableValue& device : devices) {
    COLLOPS_RETURN_IF_ERROR(ReadDevice(device, rank, table, ranks));
  }
  return Ok();
}

Status PlaceInPod(const TableValue& entry, const std::string& pod, RankTable* table) {
  std::string id;
  COLLOPS_RETURN_IF_ERROR(entry.Text("server_id", &id));
  for (RankTable::Server& server : table->servers) {
    if (server.id != id) continue;
    if (!server.super_pod_id.empty()) {
      return entry.Wrong(".server_id: \"", id, "\" is in super pod \"", server.super_pod_id,
                         "\" already");
    }
    server.super_pod_id = pod;
    return Ok();
  }
  return entry.Wrong(".server_id: \"", id, "\" is not in server_list");
}

// Every server in exactly one super pod, and every super_device_id once in its pod.
Status ReadSuperPods(const TableValue& root, RankTable* table) {
  std::vector<TableValue> pods;
  const Status listed = root.List("super_pod_list", &pods);
  Note(listed, table);
  if (!root.Has("super_pod_list")) return Ok();
  COLLOPS_RETURN_IF_ERROR(listed);
  Unique ids;
  for (const TableValue& pod : pods) {
    std::string id;
    COLLOPS_RETURN_IF_ERROR(pod.Text("super_pod_id", &id));
    COLLOPS_RETURN_IF_ERROR(ids.Add(id, pod, "super_pod_id"));
    std::vector<TableValue> servers;
    COLLOPS_RETURN_IF_ERROR(pod.List("server_list", &servers));
    for (const TableValue& server : servers) COLLOPS_RETURN_IF_ERROR(PlaceInPod(server, id, table));
  }
  for (const RankTable::Server& server : table->servers) {
    COLLOPS_CHECK_ARG(!server.super_pod_id.empty(), ERROR_INVALID_PARAM, table->file, ": server \"",
                      server.id, "\" of server_list is in no entry of super_pod_list");
  }
  std::map<std::pair<std::string, std::string>, size_t> devices;
  for (size_t r = 0; r < table->ranks.size(); ++r) {
    const RankTable::Rank& rank = table->ranks[r];
    if (rank.super_device_id.empty()) continue;
    const std::string& pod = table->servers[static_cast<size_t>(rank.server)].super_pod_id;
    const auto [first, added] = devices.emplace(std::pair(pod, rank.super_device_id), r);
    COLLOPS_CHECK_ARG(added, ERROR_INVALID_PARAM, table->file, ": super_device_id \"",
                      rank.super_device_id, "\" is given to ranks ", first->second, " and ", r,
                      " of super pod \"", pod, "\"");
  }
  return Ok();
}

}  // namespace

std::string TableValue::PathOf(const char* key) const {
  return path_.empty() ? std::string(key) : path_ + "." + key;
}

Status TableValue::MustBe(const std::string& rule) const {
  return Wrong(" must be ", rule, ", got ", ShowJson(*json_));
}

bool TableValue::Has(const char* key) const {
  return json_->is_object() && json_->contains(key);
}

Status TableValue::Get(const char* key, TableValue* member) const {
  if (!json_->is_object()) {
    return path_.empty() ? Wrong("the table must be an object, got ", ShowJson(*json_))
                         : MustBe("an object");
  }
  const auto found = json_->find(key);
  if (found == json_->end()) {
    return Error(ERROR_INVALID_PARAM, file_, ": ", PathOf(key), " is missing");
  }
  *member = TableValue(*found, file_, PathOf(key));
  return Ok();
}

Status TableValue::List(const char* key, std::vector<TableValue>* entries) const {
  TableValue list;
  COLLOPS_RETURN_IF_ERROR(Get(key, &list));
  if (!list.json_->is_array()) return list.MustBe("an array");
  if (list.json_->empty()) return list.Wrong(" is empty, it must have an entry");
  entries->clear();
  for (const Json& entry : *list.json_) {
    entries->push_back(TableValue(entry, file_, Concat(list.path_, "[", entries->size(), "]")));
  }
  return Ok();
}

Status TableValue::Text(const char* key, std::string* text, size_t longest) const {
  TableValue member;
  COLLOPS_RETURN_IF_ERROR(Get(key, &member));
  if (!member.json_->is_string()) return member.MustBe("a string");
  *text = member.json_->get<std::string>();
  if (text->empty() || text->size() > longest || !IsPrintable(*text)) {
    return member.MustBe(Concat("1 to ", longest, " characters without spaces"));
  }
  return Ok();
}

Status TableValue::OptionalText(const char* key, std::string* text, size_t longest) const {
  text->clear();
  TableValue member;
  if (!Has(key)) return Ok();
  COLLOPS_RETURN_IF_ERROR(Get(key, &member));
  return *member.json_ == "" ? Ok() : Text(key, text, longest);
}

Status TableValue::Number(const char* key, int64_t lowest, int64_t highest, int64_t* number,
                          bool digits) const {
  TableValue member;
  COLLOPS_RETURN_IF_ERROR(Get(key, &member));
  const Json& json = *member.json_;
  bool is_number = json.is_number_integer();
  if (digits) {
    is_number = json.is_string() && IsDigits(json.get_ref<const std::string&>());
    *number = is_number ? std::stoll(json.get_ref<const std::string&>()) : 0;
  } else if (is_number) {
    // What is past int64 is past every limit.
    const bool fits = !json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX;
    *number = fits ? json.get<int64_t>() : INT64_MAX;
  }
  if (!is_number || *number < lowest || *number > highest) {
    return member.MustBe(
        Concat("a ", digits ? "string of digits" : "number", ", ", lowest, " to ", highest));
  }
  return Ok();
}

Status TableValue::Count(const char* key, size_t length, const char* list, bool digits) const {
  if (!Has(key)) return Ok();
  int64_t count = 0;
  COLLOPS_RETURN_IF_ERROR(Number(key, 0, INT64_MAX, &count, digits));
  TableValue member;
  COLLOPS_RETURN_IF_ERROR(Get(key, &member));
  if (count == static_cast<int64_t>(length)) return Ok();
  return member.Wrong(" is ", count, ", but ", PathOf(list), " has length ", length);
}

// This form numbers no ranks: they are counted over the devices, sorted by server and device.
Status ReadGroupList(const TableValue& root, RankTable* table) {
  std::vector<TableValue> groups;
  COLLOPS_RETURN_IF_ERROR(root.List("group_list", &groups));
  COLLOPS_RETURN_IF_ERROR(root.Count("group_count", groups.size(), "group_list"));
  std::vector<Device> devices;
  for (const TableValue& group : groups) COLLOPS_RETURN_IF_ERROR(ReadGroup(group, &devices));
  std::sort(devices.begin(), devices.end(), [](const Device& a, const Device& b) {
    return std::tie(a.server, a.rank.device_id) < std::tie(b.server, b.rank.device_id);
  });
  for (size_t r = 0; r < devices.size(); ++r) {
    Device& device = devices[r];
    const bool first = table->servers.empty() || table->servers.back().id != device.server;
    if (first) table->servers.push_back({device.server, "", ""});
    device.rank.server = static_cast<int>(table->servers.size()) - 1;
    // Which of the two is which rank, nobody could tell.
    COLLOPS_CHECK_ARG(first || table->ranks.back().device_id != device.rank.device_id,
                      ERROR_INVALID_PARAM, table->file, ": device_id \"", device.rank.device_id,
                      "\" is given twice on server \"", device.server, "\"");
    table->ranks.push_back(std::move(device.rank));
  }
  return Ok();
}

Status ReadRankList(const TableValue& root, RankTable* table) {
  std::vector<TableValue> entries;
  COLLOPS_RETURN_IF_ERROR(root.List("rank_list", &entries));
  COLLOPS_RETURN_IF_ERROR(root.Count("rank_count", entries.size(), "rank_list", kDigits));
  ListedRanks ranks;
  for (const TableValue& entry : entries) COLLOPS_RETURN_IF_ERROR(ReadRank(entry, table, &ranks));
  return ranks.Take(table->file, &table->ranks);
}

Status ReadServerList(const TableValue& root, RankTable* table) {
  std::vector<TableValue> servers;
  COLLOPS_RETURN_IF_ERROR(root.List("server_list", &servers));
  COLLOPS_RETURN_IF_ERROR(root.Count("server_count", servers.size(), "server_list"));
  Unique ids;
  ListedRanks ranks;
  for (const TableValue& server : servers) {
    COLLOPS_RETURN_IF_ERROR(ReadServer(server, table, &ids, &ranks));
  }
  COLLOPS_RETURN_IF_ERROR(ranks.Take(table->file, &table->ranks));
  return table->version == kSuperPods ? ReadSuperPods(root, table) : Ok();
}

namespace {

// 100,000 ranks take about 15 MB.
constexpr int64_t kMaxBytes = int64_t{64} << 20;

struct OpenFile {
  int descriptor;
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
};

// The error that a system call has left in errno.
Status SystemError(const std::string& name) {
  const int error = errno;
  ErrorCode code = ERROR_RT_FAIL;
  if (error == ENOMEM) code = ERROR_OUT_OF_HOST_MEMORY;
  for (const int of_path : {ENOENT, ENOTDIR, EACCES, EPERM, ELOOP, ENAMETOOLONG}) {
    if (error == of_path) code = ERROR_INVALID_PARAM;
  }
  return Error(code, name, ": ", std::strerror(error));
}

Status CheckKind(const std::string& name, const struct stat& info) {
  COLLOPS_CHECK_ARG(S_ISREG(info.st_mode), ERROR_INVALID_PARAM, name, " is not a regular file");
  COLLOPS_CHECK_ARG(info.st_size <= kMaxBytes, ERROR_INVALID_PARAM, name, " has ", info.st_size,
                    " bytes, the limit is ", kMaxBytes);
  return Ok();
}

Status ReadAll(const std::string& name, int descriptor, std::string* text) {
  char bytes[65536];
  text->clear();
  while (true) {
    const ssize_t count = read(descriptor, bytes, sizeof(bytes));
    if (count == 0) return Ok();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(name);
    text->append(bytes, static_cast<size_t>(count));
    // It may have grown since its size was asked.
    COLLOPS_CHECK_ARG(static_cast<int64_t>(text->size()) <= kMaxBytes, ERROR_INVALID_PARAM, name,
                      " has more than ", kMaxBytes, " bytes");
  }
}

struct Format {
  const char* version;
  Status (*read)(const TableValue& root, RankTable* table);
};

constexpr Format kFormats[] = {
    {"", ReadGroupList},          {"1.0", ReadServerList},  {"1.1", ReadServerList},
    {kSuperPods, ReadServerList}, {kNumbers, ReadRankList},
};

std::string NameOf(const std::string& path) {
  return Concat("rank table \"", path, "\"");
}

Status ReadVersion(const TableValue& root, const Format** format, std::string* version) {
  version->clear();
  if (root.Has("version")) COLLOPS_RETURN_IF_ERROR(root.Text("version", version));
  for (const Format& row : kFormats) {
    if (*version == row.version) {
      *format = &row;
      return Ok();
    }
  }
  TableValue value;
  COLLOPS_RETURN_IF_ERROR(root.Get("version", &value));
  return value.Wrong(" must be \"1.0\", \"1.1\", \"1.2\" or \"2.0\", or be left out with a ",
                     "group_list, got \"", *version, "\"");
}

// Version 2.0 may leave it out.
Status ReadStatus(const TableValue& root, bool* completed) {
  std::string status;
  std::string version;
  *completed = !root.Has("status") && root.Text("version", &version).ok() && version == kNumbers;
  if (*completed) return Ok();
  COLLOPS_RETURN_IF_ERROR(root.Text("status", &status));
  *completed = status == "completed";
  if (*completed || status == "initializing") return Ok();
  TableValue value;
  COLLOPS_RETURN_IF_ERROR(root.Get("status", &value));
  return value.Wrong(" must be \"completed\" or \"initializing\", got \"", status, "\"");
}

}  // namespace

Status CheckTableFile(const std::string& path, const std::string& name) {
  COLLOPS_CHECK_ARG(path.find('\0') == std::string::npos, ERROR_INVALID_PARAM, name,
                    ": the path contains a NUL character");
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return SystemError(name);
  return CheckKind(name, info);
}

Status ReadTableFile(const std::string& path, const std::string& name, std::string* text) {
  // Before it is opened: opening some devices does something.
  COLLOPS_RETURN_IF_ERROR(CheckTableFile(path, name));
  const OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.descriptor < 0) return SystemError(name);
  // Once more: it may have been replaced in between.
  struct stat info = {};
  if (fstat(file.descriptor, &info) != 0) return SystemError(name);
  COLLOPS_RETURN_IF_ERROR(CheckKind(name, info));
  return ReadAll(name, file.descriptor, text);
}

}  // namespace rank_table

Status ParseRankTable(const std::string& text, const std::string& path, RankTable* table) {
  RankTable read;
  read.path = path;
  read.file = rank_table::NameOf(path);
  read.digest = Hex(Sha256(text));
  Json json;
  COLLOPS_RETURN_IF_ERROR(ParseJson(text, read.file, &json));
  const rank_table::TableValue root(json, read.file);
  COLLOPS_RETURN_IF_ERROR(rank_table::ReadStatus(root, &read.completed));
  const rank_table::Format* format = nullptr;
  // A table that is not complete may lack everything else.
  if (read.completed) {
    COLLOPS_RETURN_IF_ERROR(rank_table::ReadVersion(root, &format, &read.version));
    COLLOPS_RETURN_IF_ERROR(format->read(root, &read));
  }
  *table = std::move(read);
  return Ok();
}

Status ReadRankTable(const std::string& path, RankTable* table) {
  std::string text;
  COLLOPS_RETURN_IF_ERROR(rank_table::ReadTableFile(path, rank_table::NameOf(path), &text));
  return ParseRankTable(text, path, table);
}

}  // namespace collops
