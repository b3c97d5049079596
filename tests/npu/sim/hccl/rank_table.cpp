#include "rank_table.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "acl.h"
#include "communicator.h"
#include "sim/sockets.h"

namespace collops_sim {
namespace {

constexpr size_t kMostServerId = 64;
constexpr int kMostPort = 65535;

// What the loader asks of the chip, by aclrtGetSocName's name.
struct Chip {
  bool is_a2 = false;
  bool is_a3 = false;
  bool is_a5 = false;
  int most_device = 7;
};

Chip ChipHere() {
  const std::string name = SocName();
  const auto begins = [&](const char* text) { return name.rfind(text, 0) == 0; };
  if (begins("Ascend950") || begins("Ascend910_95")) return {false, false, true, 64};
  if (begins("Ascend910_93")) return {false, true, false, 15};
  if (begins("Ascend910B") && name != "Ascend910B") return {true, false, false, 15};
  return {false, false, false, begins("Ascend310P") ? 31 : 7};
}

// As much of JSON as rank tables have.
struct Json {
  enum Kind { kString, kOther, kObject, kArray };

  Kind kind = kOther;  // numbers, true, false and null are told apart by their text
  std::string text;
  std::map<std::string, Json> members;
  std::vector<Json> items;

  // Null if there is none.
  const Json* Find(const std::string& name) const {
    const auto found = members.find(name);
    return found == members.end() ? nullptr : &found->second;
  }
};

class Parser {
 public:
  explicit Parser(std::string text) : text_(std::move(text)) {}

  // False if the text is no JSON.
  bool All(Json* result) { return Value(result) && Peek() == '\0' && at_ >= text_.size(); }

 private:
  bool Value(Json* result) {
    switch (Peek()) {
      case '{':
        return Object(result);
      case '[':
        return Array(result);
      case '"':
        result->kind = Json::kString;
        return String(&result->text);
      default:
        return Other(result);
    }
  }
  char Peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char wanted) {
    if (Peek() != wanted) return false;
    ++at_;
    return true;
  }
  bool Object(Json* result) {
    result->kind = Json::kObject;
    if (!Take('{')) return false;
    if (Take('}')) return true;
    do {
      std::string name;
      if (Peek() != '"' || !String(&name) || !Take(':')) return false;
      if (!Value(&result->members[name])) return false;
    } while (Take(','));
    return Take('}');
  }
  bool Array(Json* result) {
    result->kind = Json::kArray;
    if (!Take('[')) return false;
    if (Take(']')) return true;
    do {
      if (!Value(&result->items.emplace_back())) return false;
    } while (Take(','));
    return Take(']');
  }
  // Escapes are kept as they are: no field of a rank table needs one.
  bool String(std::string* result) {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') *result += text_[at_++];
      if (at_ < text_.size()) *result += text_[at_];
    }
    return Take('"');
  }
  bool Other(Json* result) {
    result->kind = Json::kOther;
    const size_t begin = at_;
    while (at_ < text_.size() && std::strchr("+-.", text_[at_]) != nullptr) ++at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.')) {
      ++at_;
    }
    result->text = text_.substr(begin, at_ - begin);
    return at_ > begin;
  }

  const std::string text_;
  size_t at_ = 0;
};

// What is wrong with a table; HcclResult's number goes with it.
struct Problem {
  int code;
  std::string text;
};

const Json& Member(const Json& object, const std::string& name) {
  const Json* field = object.Find(name);
  if (field == nullptr) throw Problem{kNotFound, "EI0017: there is no " + name};
  return *field;
}

std::string Text(const Json& object, const std::string& name, bool is_optional = false) {
  if (is_optional && object.Find(name) == nullptr) return "";
  const Json& field = Member(object, name);
  if (field.kind == Json::kString) return field.text;
  throw Problem{kBadParameter, "EI0017: " + name + " is not string"};
}

int Parsed(const std::string& text, const std::string& name, int least, int most) {
  const bool is_number = !text.empty() && text.size() <= 9 &&
                         std::all_of(text.begin(), text.end(),
                                     [](char digit) { return digit >= '0' && digit <= '9'; });
  if (!is_number || std::atoi(text.c_str()) < least || std::atoi(text.c_str()) > most) {
    throw Problem{kBadParameter, "EI0014: " + name + " " + text + " is no number of its range"};
  }
  return std::atoi(text.c_str());
}

int Number(const Json& object, const std::string& name, int most) {
  return Parsed(Text(object, name), name, 0, most);
}

// Version 2.0 has numbers.
int PlainNumber(const Json& object, const std::string& name, int most) {
  const Json& field = Member(object, name);
  return Parsed(field.kind == Json::kOther ? field.text : "\"" + field.text, name, 0, most);
}

const std::vector<Json>& List(const Json& object, const std::string& name) {
  const Json& field = Member(object, name);
  if (field.kind != Json::kArray || field.items.empty()) {
    throw Problem{kBadParameter, "the size of " + name + " is zero"};
  }
  return field.items;
}

bool IsAddress(const std::string& text, int* family = nullptr) {
  char bytes[16];
  for (const int kind : {AF_INET, AF_INET6}) {
    if (inet_pton(kind, text.c_str(), bytes) != 1) continue;
    if (family != nullptr) *family = kind;
    return true;
  }
  return false;
}

// Reads versions 1.0 and 1.2 as hcomm's loader does, check by check.
class Loader {
 public:
  Loader(const Json& table, const Chip& chip, RankTable* result)
      : table_(table), chip_(chip), result_(*result) {}

  void Run(bool has_pods) {
    has_pods_ = has_pods;
    const std::vector<Json>& servers = List(table_, "server_list");
    if (table_.Find("server_count") != nullptr &&
        static_cast<size_t>(Number(table_, "server_count", INT_MAX)) != servers.size()) {
      throw Problem{kBadParameter, "EI0014: server_count is not the length of server_list"};
    }
    num_servers_ = servers.size();
    for (const Json& server : servers) ReadServer(server);
    if (has_pods && chip_.is_a3 && table_.Find("super_pod_list") != nullptr) ReadPods();
    if (num_servers_ > 1 && families_.size() > 1) {
      throw Problem{kBadParameter, "EI0001: the device ip family is not same as others"};
    }
    if (!chip_.is_a2 && !chip_.is_a3) CheckEqualNumbers();
  }

 private:
  void ReadServer(const Json& server) {
    const std::string name = Text(server, "server_id");
    if (name.empty() || name.size() > kMostServerId || pod_of_.count(name) != 0) {
      throw Problem{kBadParameter, "server_id " + name + " is too long, or already exist"};
    }
    pod_of_[name] = "";
    names_.push_back(name);
    const std::string host = Text(server, "host_ip", true);
    if (server.Find("host_ip") != nullptr && !IsAddress(host)) {
      throw Problem{kBadParameter, "EI0014: host_ip is no address"};
    }
    result_.hosts.push_back(!host.empty() ? host : IsAddress(name) ? name : "");
    for (const Json& device : List(server, "device")) ReadDevice(device, !host.empty());
  }

  void ReadDevice(const Json& device, bool has_host) {
    const std::string rank = Text(device, "rank_id");
    const int id = Number(device, "device_id", chip_.most_device);
    CheckPort(device, "host_port");
    ReadAddresses(device, has_host);
    if (device.Find("device_port") != nullptr) {
      CheckPort(device, "device_port");
      CheckPort(device, "device_vnic_port");
    }
    super_ids_.push_back(-1);
    if (has_pods_ && device.Find("super_device_id") != nullptr) {
      super_ids_.back() = Number(device, "super_device_id", INT_MAX);
    }
    result_.ranks.push_back({id, names_.size() - 1, Parsed(rank, "rank_id", 0, INT_MAX)});
  }

  static void CheckPort(const Json& device, const char* name) {
    if (device.Find(name) != nullptr) Parsed(Text(device, name), name, 1, kMostPort);
  }

  // Between servers an Atlas A2 needs addresses; an Atlas A3 has its own links, as far as the
  // loader knows, and the others may go through the host.
  void ReadAddresses(const Json& device, bool has_host) {
    const bool is_there = device.Find("device_ip") != nullptr;
    const std::string text = Text(device, "device_ip", true);
    const bool is_wrong = (!is_there && !has_host) || (chip_.is_a2 && text.empty());
    if (num_servers_ > 1 && is_wrong && !chip_.is_a3) {
      throw Problem{kBadParameter, "EI0014: device_ip is not set correctly"};
    }
    size_t count = 0;
    std::istringstream list(text);
    for (std::string address; std::getline(list, address, ','); ++count) {
      int family = 0;
      if (!IsAddress(address, &family)) {
        throw Problem{kBadParameter, "EI0014: device_ip " + address + " is no address"};
      }
      families_.insert(family);
      if (!addresses_.insert(address).second) {
        throw Problem{kBadParameter, "EI0014: device_ip " + address + " is already exist"};
      }
    }
    count = std::max<size_t>(count, 1);
    if (per_device_ == 0) per_device_ = count;
    if (count != per_device_) {
      throw Problem{kBadParameter, "the devices have different numbers of device_ip"};
    }
  }

  // Of an Atlas A3 that is in a super pod.
  void ReadPods() {
    std::set<std::string> pods;
    for (const Json& pod : List(table_, "super_pod_list")) {
      const std::string id = Text(pod, "super_pod_id");
      if (!pods.insert(id).second) throw Problem{kBadParameter, "super_pod_id already exist"};
      for (const Json& server : List(pod, "server_list")) {
        const auto found = pod_of_.find(Text(server, "server_id"));
        if (found == pod_of_.end()) throw Problem{kNotFound, "EI0014: server_id is not exist"};
        found->second = id;
      }
    }
    std::set<std::pair<std::string, int>> devices;
    for (size_t i = 0; i < super_ids_.size(); ++i) {
      const std::string& pod = pod_of_[names_[result_.ranks[i].server]];
      if (pod.empty() || super_ids_[i] < 0 || !devices.insert({pod, super_ids_[i]}).second) {
        throw Problem{kBadParameter, "a super_device_id or super pod is invalid or repeated"};
      }
    }
  }

  void CheckEqualNumbers() const {
    std::map<size_t, size_t> numbers;
    for (const RankTable::Entry& rank : result_.ranks) ++numbers[rank.server];
    for (const auto& [server, number] : numbers) {
      if (number * num_servers_ != result_.ranks.size()) {
        throw Problem{kBadParameter, "EI0014: the servers have different numbers of devices"};
      }
    }
  }

  const Json& table_;
  const Chip chip_;
  RankTable& result_;
  bool has_pods_ = false;
  size_t num_servers_ = 0;
  size_t per_device_ = 0;
  std::vector<std::string> names_;  // of the servers
  std::map<std::string, std::string> pod_of_;
  std::set<std::string> addresses_;
  std::set<int> families_;
  std::vector<int> super_ids_;  // by device; -1: none
};

// Version 2.0, of an Atlas A5: ranks with the same instance of layer 0 are on one server.
void ReadRankList(const Json& table, const Chip& chip, RankTable* result) {
  const std::vector<Json>& ranks = List(table, "rank_list");
  if (static_cast<size_t>(PlainNumber(table, "rank_count", 65536)) != ranks.size()) {
    throw Problem{kBadParameter, "EI0014: rank_count is not the length of rank_list"};
  }
  std::map<std::string, size_t> servers;
  for (const Json& rank : ranks) {
    const int number = PlainNumber(rank, "rank_id", INT_MAX);
    PlainNumber(rank, "local_id", 64);
    const int device = PlainNumber(rank, "device_id", chip.most_device);
    int last = -1;
    size_t server = 0;
    for (const Json& level : List(rank, "level_list")) {
      const int layer = PlainNumber(level, "net_layer", 7);
      if (layer <= last) throw Problem{kBadParameter, "level is not increased in sequence"};
      last = layer;
      const std::string instance = Text(level, "net_instance_id");
      if (layer == 0) server = servers.emplace(instance, servers.size()).first->second;
      List(level, "rank_addr_list");
    }
    result->ranks.push_back({device, server, number});
  }
  result->hosts.resize(std::max<size_t>(servers.size(), 1));
}

void Interpret(const Json& table, RankTable* result) {
  const Chip chip = ChipHere();
  const std::string version = Text(table, "version");
  if (chip.is_a5 != (version == "2.0")) {
    throw Problem{chip.is_a5 ? kBadParameter : kNotSupported,
                  "EI0014: version " + version + " is not supported on " + SocName()};
  }
  if (!chip.is_a5 && version != "1.0" && version != "1.2") {
    throw Problem{kNotSupported, "EI0014: version " + version + " is not supported"};
  }
  if (chip.is_a5) {
    ReadRankList(table, chip, result);
  } else {
    Loader(table, chip, result).Run(version == "1.2");
  }
  const auto before = [](const auto& a, const auto& b) { return a.rank < b.rank; };
  std::stable_sort(result->ranks.begin(), result->ranks.end(), before);
}

}  // namespace

int RankTable::Load(const char* path) {
  constexpr double kCompleteS = 1800;
  char resolved[PATH_MAX] = {};
  if (realpath(path, resolved) == nullptr) {
    return Refuse(kInternal, std::string("EI0004: ") + path + " is not a valid real path");
  }
  file_ = resolved;
  if (file_.find(".json") + 5 != file_.size()) {
    return Refuse(kInternal, "EI0004: " + file_ + " is not a valid .json file");
  }
  const double deadline = Now() + Limit("COLLOPS_SIM_TABLE_S", kCompleteS);
  for (;;) {
    std::ifstream file(file_);
    std::ostringstream text;
    text << file.rdbuf();
    text_ = text.str();
    Json table;
    const bool is_object = Parser(text_).All(&table) && table.kind == Json::kObject;
    const Json* status = is_object ? table.Find("status") : nullptr;
    if (status == nullptr || status->kind != Json::kString) {
      return Refuse(kInternal, "EI0004: invalid ranktable format, or no status");
    }
    if (status->text == "completed") return kSuccess;
    if (Now() > deadline) return Refuse(kInternal, "EI0004: the rank table was not completed");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

int RankTable::Read(uint32_t own, int device) {
  Json table;
  Parser(text_).All(&table);
  digest = std::to_string(std::hash<std::string>()(file_ + text_));
  try {
    Interpret(table, this);
    const auto size = static_cast<uint32_t>(ranks.size());
    const auto number = static_cast<int>(own);
    if (own >= size) throw Problem{kBadParameter, "EI0014: the rank table has no such rank"};
    if (ranks[own].rank != number) {
      throw Problem{kNotAvailable, "EI0014: rank_id " + std::to_string(number) + " is not in it"};
    }
    if (ranks[own].device != device) {
      throw Problem{kNotAvailable,
                    "EI0014: the rank table has device " + std::to_string(ranks[own].device) +
                        " for this rank, but the thread's is " + std::to_string(device)};
    }
    for (uint32_t r = 0; r < size; ++r) {
      if (ranks[r].rank != static_cast<int>(r)) {
        throw Problem{kBadParameter, "EI0014: rank_id is not 0 to n - 1, each once"};
      }
    }
  } catch (const Problem& problem) {
    return Refuse(problem.code, "rank table " + file_ + ": " + problem.text);
  }
  return kSuccess;
}

}  // namespace collops_sim
