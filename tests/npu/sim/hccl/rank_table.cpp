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
constexpr int kMostDevice = 7;

// As much of JSON as rank tables have.
struct Json {
  enum Kind { kString, kOther, kObject, kArray };

  Kind kind = kOther;  // numbers, true, false and null are not told apart
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

std::string Text(const Json& object, const std::string& name, bool is_optional = false) {
  const Json* field = object.Find(name);
  if (field == nullptr && is_optional) return "";
  if (field == nullptr) throw Problem{kBadParameter, "there is no " + name};
  if (field->kind != Json::kString) throw Problem{kBadParameter, name + " is not string"};
  return field->text;
}

int Number(const Json& object, const std::string& name, int most) {
  const std::string text = Text(object, name);
  const bool is_number = !text.empty() && text.size() <= 6 &&
                         std::all_of(text.begin(), text.end(),
                                     [](char digit) { return digit >= '0' && digit <= '9'; });
  if (!is_number || std::atoi(text.c_str()) > most) {
    throw Problem{kBadParameter, name + " " + text + " is no number of its range"};
  }
  return std::atoi(text.c_str());
}

const std::vector<Json>& List(const Json& object, const std::string& name) {
  const Json* field = object.Find(name);
  if (field == nullptr || field->kind != Json::kArray || field->items.empty()) {
    throw Problem{kBadParameter, "there is no list " + name};
  }
  return field->items;
}

bool IsAddress(const std::string& text) {
  in_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1;
}

void CheckPods(const Json& table, const std::set<std::string>& servers) {
  std::set<std::string> seen;
  for (const Json& pod : List(table, "super_pod_list")) {
    Text(pod, "super_pod_id");
    for (const Json& server : List(pod, "server_list")) {
      if (!seen.insert(Text(server, "server_id")).second) {
        throw Problem{kBadParameter, "a server is in two super pods"};
      }
    }
  }
  if (seen != servers) throw Problem{kBadParameter, "the super pods have other servers"};
}

void ReadServer(const Json& server, bool is_alone, bool has_pods, std::set<std::string>* addresses,
                std::vector<std::pair<int, RankTable::Entry>>* ranks, size_t index) {
  for (const Json& device : List(server, "device")) {
    const int id = Number(device, "device_id", kMostDevice);
    const std::string address = Text(device, "device_ip", is_alone);
    if (!address.empty() && !IsAddress(address)) {
      throw Problem{kBadParameter, "device_ip " + address + " is no address"};
    }
    if (!address.empty() && !addresses->insert(address).second) {
      throw Problem{kBadParameter, "device_ip " + address + " already exist"};
    }
    if (has_pods) Text(device, "super_device_id");
    ranks->push_back({Number(device, "rank_id", INT_MAX), {id, index}});
  }
}

void Interpret(const Json& table, RankTable* result) {
  const std::string version = Text(table, "version");
  if (version != "1.0" && version != "1.2") {
    throw Problem{kNotSupported, "version " + version + " is not supported"};
  }
  const std::vector<Json>& servers = List(table, "server_list");
  if (static_cast<size_t>(Number(table, "server_count", INT_MAX)) != servers.size()) {
    throw Problem{kBadParameter, "server_count is not the length of server_list"};
  }
  std::set<std::string> names;
  std::set<std::string> addresses;
  std::vector<std::pair<int, RankTable::Entry>> ranks;
  for (size_t i = 0; i < servers.size(); ++i) {
    const std::string name = Text(servers[i], "server_id");
    if (name.empty() || name.size() > kMostServerId || !names.insert(name).second) {
      throw Problem{kBadParameter, "server_id " + name + " is too long, or already exist"};
    }
    const std::string host = Text(servers[i], "host_ip", true);
    if (!host.empty() && !IsAddress(host)) throw Problem{kBadParameter, "host_ip is no address"};
    result->hosts.push_back(!host.empty() ? host : IsAddress(name) ? name : "");
    ReadServer(servers[i], servers.size() == 1, version == "1.2", &addresses, &ranks, i);
  }
  if (version == "1.2") CheckPods(table, names);
  const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::stable_sort(ranks.begin(), ranks.end(), before);
  std::set<size_t> left;  // servers whose ranks are behind
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].first != static_cast<int>(r)) {
      throw Problem{kBadParameter, "rank_id is not 0 to n - 1, each once"};
    }
    const size_t server = ranks[r].second.server;
    if (r > 0 && ranks[r - 1].second.server != server) left.insert(ranks[r - 1].second.server);
    if (left.count(server) != 0) throw Problem{kBadParameter, "the ranks of two servers alternate"};
    result->ranks.push_back(ranks[r].second);
  }
}

}  // namespace

int RankTable::Read(const char* path) {
  constexpr double kConnectS = 120;
  char resolved[PATH_MAX] = {};
  const std::string name = path;
  const std::string suffix = ".json";
  if (realpath(path, resolved) == nullptr || name.size() < suffix.size() ||
      name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
    return Refuse(kBadParameter, "EI0004: " + name + " is not a valid real path of a .json");
  }
  const double deadline = Now() + Limit("HCCL_CONNECT_TIMEOUT", kConnectS);
  try {
    for (;;) {
      std::ifstream file(resolved);
      std::ostringstream text;
      text << file.rdbuf();
      Json table;
      if (!Parser(text.str()).All(&table) || table.kind != Json::kObject) {
        throw Problem{kBadParameter, "EI0004: invalid ranktable format"};
      }
      const std::string status = Text(table, "status");
      if (status == "completed") {
        digest = std::to_string(std::hash<std::string>()(resolved + text.str()));
        Interpret(table, this);
        return kSuccess;
      }
      if (status != "initializing") throw Problem{kBadParameter, "status " + status};
      if (Now() > deadline) throw Problem{kTimeout, "the rank table was not completed"};
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  } catch (const Problem& problem) {
    return Refuse(problem.code, "rank table " + name + ": " + problem.text);
  }
}

}  // namespace collops_sim
