#include <algorithm>
#include <tuple>

#include "collops/comm/placement/rank_table/formats.h"

namespace collops::rank_table {
namespace {

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
    COLLOPS_RETURN_IF_ERROR(entry.OptionalText("device_ip", &device.rank.device_ip));
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

}  // namespace

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

}  // namespace collops::rank_table
