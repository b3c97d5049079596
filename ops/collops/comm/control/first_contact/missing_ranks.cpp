#include "collops/comm/control/first_contact/missing_ranks.h"

#include <utility>

#include "collops/core/status.h"

namespace collops::control {
namespace {

// Of the hosts, of the ranks of each, and of those that have asked.
constexpr int kMostListed = 4;

// The list, and how many are not in it.
class Listed {
 public:
  void Add(const std::string& one) {
    if (number_++ < kMostListed) text_ += Concat(text_.empty() ? "" : ", ", one);
  }
  int number() const { return number_; }
  std::string Text() const {
    return number_ > kMostListed ? Concat(text_, " and ", number_ - kMostListed, " others") : text_;
  }

 private:
  std::string text_;
  int number_ = 0;
};

std::string Places(const RankSet& present, const std::vector<std::string>& hosts) {
  std::vector<std::pair<std::string, Listed>> missing;
  std::map<std::string, size_t> index;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (present.Contains(static_cast<int>(rank))) continue;
    const auto [at, is_new] = index.emplace(hosts[rank], missing.size());
    if (is_new) missing.emplace_back(hosts[rank], Listed());
    missing[at->second].second.Add(std::to_string(rank));
  }
  Listed places;
  for (const auto& [host, ranks] : missing) {
    places.Add(Concat(ranks.number() > 1 ? "ranks " : "rank ", ranks.Text(), " on ", host));
  }
  return places.number() == 0 ? "" : Concat("; the rank table places ", places.Text());
}

}  // namespace

void PortHearsay::Take(const PortNews& news) {
  if (!news.turned_away.empty()) turned_away = news.turned_away;
  if (news.rank >= 0) asked[news.rank] = news.where;
}

std::string HostText(const std::string& name, const std::string& address) {
  return name.empty() || name == address ? address : Concat(name, ", ", address);
}

std::string DescribeMissing(const RankSet& present, const std::vector<std::string>& hosts,
                            const PortHearsay& hearsay) {
  std::string text = Places(present, hosts);
  Listed asked;
  for (const auto& [rank, where] : hearsay.asked) {
    if (rank < present.size() && !present.Contains(rank)) {
      asked.Add(Concat("rank ", rank, " (on ", where, ")"));
    }
  }
  if (asked.number() > 0) {
    text += Concat("; ", asked.Text(), " asked at the job's port, and did not come");
  }
  // Last, as a stranger may say much.
  std::string strangers;
  for (const std::string& who : hearsay.turned_away) {
    strangers += Concat(strangers.empty() ? "; turned away: " : " | ", who);
  }
  text += strangers;
  if (text.size() > kMostKnownBytes) text = text.substr(0, kMostKnownBytes - 3) + "...";
  return text;
}

}  // namespace collops::control
