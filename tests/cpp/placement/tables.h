#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

// Rank tables that are right, one for each form; tests spoil them by replacing a part.
namespace tables {

inline constexpr const char* kTwoServers = R"({
  "version": "1.0", "status": "completed", "server_count": "2", "group_name": "unknown keys are",
  "server_list": [
    {"server_id": "10.20.0.8", "host_ip": "10.20.0.8", "host_nic_ip": "reserve", "device": [
      {"device_id": "0", "device_ip": "172.30.2.10", "rank_id": "2"},
      {"device_id": "1", "device_ip": "172.30.2.11", "rank_id": "3"}]},
    {"server_id": "node-a", "host_ip": "10.20.0.7", "device": [
      {"device_id": "5", "device_ip": "172.30.1.11", "rank_id": "1", "device_port": "16666"},
      {"device_id": "4", "device_ip": "172.30.1.10", "rank_id": "0"}]}]})";

// One host, whatever its name: tests set COLLOPS_SERVER_ID.
inline constexpr const char* kOneServer = R"({
  "version": "1.0", "status": "completed", "server_count": "1", "server_list": [
    {"server_id": "node-a", "device": [{"device_id": "4", "rank_id": "0"},
                                       {"device_id": "6", "rank_id": "1"}]}]})";

inline constexpr const char* kSuperPods = R"({
  "version": "1.2", "status": "completed", "server_count": "2", "server_list": [
    {"server_id": "node-a", "device": [
      {"device_id": "0", "super_device_id": "16", "device_ip": "172.30.1.10", "rank_id": "0"}]},
    {"server_id": "node-b", "device": [
      {"device_id": "0", "super_device_id": "16", "device_ip": "172.30.2.10", "rank_id": "1"}]}],
  "super_pod_list": [{"super_pod_id": "0", "server_list": [{"server_id": "node-a"}]},
                     {"super_pod_id": "1", "server_list": [{"server_id": "node-b"}]}]})";

inline constexpr const char* kGroupList = R"({
  "status": "completed", "group_count": "1", "group_list": [
    {"group_name": "g", "instance_count": "2", "device_count": "3", "instance_list": [
      {"pod_name": "p0", "server_id": "10.20.0.8", "devices": [
        {"device_id": "1", "device_ip": "172.30.2.11"}, {"device_id": "0"}]},
      {"pod_name": "p1", "server_id": "10.20.0.7", "devices": [{"device_id": "1"}]}]}]})";

inline constexpr const char* kRankList = R"({
  "version": "2.0", "status": "completed", "rank_count": 2, "rank_list": [
    {"rank_id": 1, "local_id": 0, "device_id": 3, "level_list": [
      {"net_layer": 0, "net_instance_id": "node-b", "net_type": "TOPO_FILE_DESC", "net_attr": "",
       "rank_addr_list": [{"addr_type": "EID", "addr": "000a", "ports": ["1/0"]},
                          {"addr_type": "IPV4", "addr": "172.30.1.11", "ports": ["1/0"]}]}]},
    {"rank_id": 0, "local_id": 0, "device_id": 2, "level_list": [
      {"net_layer": 1, "net_instance_id": "all", "net_type": "CLOS",
       "rank_addr_list": [{"addr_type": "IPV4", "addr": "172.30.1.10", "ports": ["1/0"]}]},
      {"net_layer": 0, "net_instance_id": "node-a", "net_type": "TOPO_FILE_DESC",
       "rank_addr_list": [{"addr_type": "IPV4", "addr": "172.30.1.9", "ports": ["1/0"]}]}]}]})";

// `text` with its first `part` replaced.
inline std::string With(std::string text, const std::string& part, const std::string& other) {
  const size_t position = text.find(part);
  return position == std::string::npos ? "no such part"
                                       : text.replace(position, part.size(), other);
}

// A folder that is gone at the end, with the files whose paths were asked for.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/collops-table-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() {
    if (getpid() != maker_) return;  // a copy in a child of fork()
    for (const std::string& file : files_) unlink(file.c_str());
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string At(const std::string& name) const { return *files_.insert(path_ + "/" + name).first; }
  // Replaces the file as a whole.
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(At(name + ".new")) << text;
    std::rename(At(name + ".new").c_str(), At(name).c_str());
    return At(name);
  }

 private:
  const pid_t maker_ = getpid();
  std::string path_;
  mutable std::set<std::string> files_;
};

}  // namespace tables
