#include "collops/comm/control/first_contact/handshake.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/placement/job.h"

namespace collops::control {
namespace {

constexpr uint64_t kMagic = 0x636f6c6c6f707331;  // "collops1"
constexpr size_t kNonceBytes = 32;
constexpr size_t kMostDomainBytes = 1024;
constexpr size_t kMostPurposeBytes = 64;
constexpr size_t kMostTextBytes = 512;
// No frame is longer before both sides are known.
constexpr size_t kMostFrameBytesBefore = 2048;

constexpr const char* kJoinerText = "collops: the one who connects proves that it knows the key";
constexpr const char* kListenerText = "collops: the listener proves that it knows the key";
constexpr const char* kJobText = "collops: which job this is";

enum class Kind { kHello = 1, kChallenge = 2, kProof = 3, kWelcome = 4, kRefusal = 5 };

bool MakeNonce(std::string* nonce) {
  nonce->resize(kNonceBytes);
  return getrandom(nonce->data(), kNonceBytes, 0) == static_cast<ssize_t>(kNonceBytes);
}

std::string TextOf(const Digest& digest) {
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

// Whether the two are equal, in a time that says nothing about where they differ.
bool IsDigest(const std::string& text, const Digest& digest) {
  Digest theirs{};
  if (text.size() != theirs.size()) return false;
  std::copy(text.begin(), text.end(), theirs.begin());
  return SameDigest(theirs, digest);
}

// Says whether two jobs are the same, and not which they are.
Digest JobMark(const JobSecret& secret) {
  return HmacSha256(secret.job_id, kJobText);
}

Digest ProofOf(const char* role, const JobSecret& secret, const Claim& claim,
               const std::string& joiner_nonce, const std::string& listener_nonce) {
  FieldWriter fields;
  fields.Text(role).Text(joiner_nonce).Text(listener_nonce).Number(kProtocolVersion);
  fields.Text(secret.job_id).Text(claim.domain).Text(claim.purpose);
  fields.Number(static_cast<uint64_t>(claim.rank)).Number(static_cast<uint64_t>(claim.rank_size));
  fields.Text(claim.host);
  return HmacSha256(secret.key.empty() ? secret.job_id : secret.key, fields.text());
}

FieldWriter FrameOfKind(Kind kind) {
  FieldWriter fields;
  fields.Number(kMagic).Number(kProtocolVersion).Number(static_cast<uint64_t>(kind));
  return fields;
}

}  // namespace

Challenge::Challenge(Connection connection, const JobSecret* secret)
    : connection_(std::move(connection)), secret_(secret) {
  connection_.LimitFrames(kMostFrameBytesBefore);
}

Proof Challenge::Step() {
  Frame frame;
  if (!refusal_.ok()) {
    while (connection_.Receive(&frame)) continue;
    return Proof::kRefused;
  }
  if (connection_.Receive(&frame)) return their_nonce_.empty() ? Greet(frame) : Check(frame);
  if (connection_.alive()) return Proof::kUnderWay;
  refusal_ = connection_.ended();
  return Proof::kRefused;
}

// A claim is what a stranger has typed: it is quoted as such, and only once the whole hello was
// sound.
Proof Challenge::Refuse(ErrorCode code, const std::string& why, const std::string& fact) {
  refusal_ = Error(code, connection_.peer(), " ", why);
  turned_away_ = Concat(connection_.peer_host(), ", which ");
  if (greeted()) {
    turned_away_ += Concat("says it is rank ", claim_.rank, claim_.host.empty() ? "" : " on ",
                           Printable(claim_.host, kMostHostNameBytes), " and ");
  }
  turned_away_ += fact;
  FieldWriter fields = FrameOfKind(Kind::kRefusal);
  fields.Number(static_cast<uint64_t>(code)).Text(why);
  static_cast<void>(connection_.Send(fields.frame()));
  connection_.CloseWriting();
  return Proof::kRefused;
}

Proof Challenge::Greet(const Frame& hello) {
  FieldReader fields(hello);
  const std::string stranger = "is not a rank of collops";
  if (fields.Number() != kMagic) return Refuse(ERROR_UNSUPPORTED, stranger, stranger);
  const uint64_t version = fields.Number();
  if (version != kProtocolVersion) {
    return Refuse(ERROR_UNSUPPORTED,
                  Concat("speaks version ", version, " of the protocol, rank 0 ", "version ",
                         kProtocolVersion, ": install one version of collops on all hosts"),
                  Concat("speaks version ", version, " of the protocol"));
  }
  const bool is_hello = fields.Number() == static_cast<uint64_t>(Kind::kHello);
  const std::string job = fields.Text(sizeof(Digest));
  const bool of_table = fields.Int(0, 1) == 1;
  const std::string nonce = fields.Text(kNonceBytes);
  claim_.domain = fields.Text(kMostDomainBytes);
  claim_.purpose = fields.Text(kMostPurposeBytes);
  claim_.rank = fields.Int(0, kMaxGroupRanks - 1);
  claim_.rank_size = fields.Int(1, kMaxGroupRanks);
  claim_.host = fields.Text(kMostHostNameBytes);
  if (!is_hello || !fields.Done() || nonce.size() != kNonceBytes || !MakeNonce(&own_nonce_)) {
    return Refuse(ERROR_UNSUPPORTED, stranger, stranger);
  }
  their_nonce_ = nonce;
  if (!IsDigest(job, JobMark(*secret_))) {
    const bool tables = of_table && IsNamedByTable(secret_->job_id);
    return Refuse(ERROR_RANK_MISMATCH,
                  tables ? "has another rank table than the ranks that listen here: copy one table "
                           "to all hosts"
                         : "belongs to another job than the one that listens here",
                  tables ? "has another rank table" : "belongs to another job");
  }
  static_cast<void>(connection_.Send(FrameOfKind(Kind::kChallenge).Text(own_nonce_).frame()));
  return Proof::kUnderWay;
}

Proof Challenge::Check(const Frame& proof) {
  FieldReader fields(proof);
  const bool is_proof = fields.Number() == kMagic && fields.Number() == kProtocolVersion &&
                        fields.Number() == static_cast<uint64_t>(Kind::kProof);
  const std::string digest = fields.Text(sizeof(Digest));
  const Digest wanted = ProofOf(kJoinerText, *secret_, claim_, their_nonce_, own_nonce_);
  if (!is_proof || !fields.Done() || !IsDigest(digest, wanted)) {
    return Refuse(ERROR_RANK_MISMATCH,
                  "has another key: set COLLOPS_JOB_KEY to the same text in all ranks",
                  "has another key");
  }
  const Digest own = ProofOf(kListenerText, *secret_, claim_, their_nonce_, own_nonce_);
  static_cast<void>(connection_.Send(FrameOfKind(Kind::kWelcome).Text(TextOf(own)).frame()));
  connection_.LimitFrames(kMostFrameBytes);
  return Proof::kGiven;
}

HandshakeClient::HandshakeClient(Connection connection, const JobSecret* secret, Claim claim)
    : connection_(std::move(connection)), secret_(secret), claim_(std::move(claim)) {
  connection_.LimitFrames(kMostFrameBytesBefore);
  claim_.host = HostName();
}

Proof HandshakeClient::Refused(const Status& why, bool may_retry) {
  refusal_ = why;
  may_retry_ = may_retry;
  return Proof::kRefused;
}

Proof HandshakeClient::Step() {
  if (!refusal_.ok()) return Proof::kRefused;
  if (!said_hello_) {
    if (!MakeNonce(&own_nonce_))
      return Refused(Error(ERROR_RT_FAIL, "the kernel gives no random numbers"), false);
    FieldWriter hello = FrameOfKind(Kind::kHello);
    hello.Text(TextOf(JobMark(*secret_))).Number(IsNamedByTable(secret_->job_id) ? 1 : 0);
    hello.Text(own_nonce_).Text(claim_.domain);
    hello.Text(claim_.purpose).Number(static_cast<uint64_t>(claim_.rank));
    hello.Number(static_cast<uint64_t>(claim_.rank_size)).Text(claim_.host);
    said_hello_ = connection_.Send(hello.frame());
  }
  Frame frame;
  if (connection_.Receive(&frame)) {
    return their_nonce_.empty() ? Answer(frame) : Judge(frame);
  }
  if (connection_.alive()) return Proof::kUnderWay;
  return Refused(connection_.ended(), true);
}

Proof HandshakeClient::Answer(const Frame& challenge) {
  FieldReader fields(challenge);
  const uint64_t magic = fields.Number();
  const uint64_t version = fields.Number();
  const uint64_t kind = fields.Number();
  if (magic == kMagic && kind == static_cast<uint64_t>(Kind::kRefusal)) return Judge(challenge);
  if (magic == kMagic && version != kProtocolVersion) {
    return Refused(Error(ERROR_UNSUPPORTED, connection_.peer(), " speaks version ", version,
                         " of the protocol, this rank version ", kProtocolVersion,
                         ": install one version of collops on all hosts"),
                   false);
  }
  their_nonce_ = fields.Text(kNonceBytes);
  if (magic != kMagic || kind != static_cast<uint64_t>(Kind::kChallenge) || !fields.Done() ||
      their_nonce_.size() != kNonceBytes) {
    return Refused(
        Error(ERROR_RT_FAIL, "what listens at ", connection_.peer(), " is not a rank of collops"),
        true);
  }
  const Digest own = ProofOf(kJoinerText, *secret_, claim_, own_nonce_, their_nonce_);
  static_cast<void>(connection_.Send(FrameOfKind(Kind::kProof).Text(TextOf(own)).frame()));
  return Proof::kUnderWay;
}

Proof HandshakeClient::Judge(const Frame& welcome) {
  FieldReader fields(welcome);
  const bool known = fields.Number() == kMagic && fields.Number() > 0;
  const uint64_t kind = fields.Number();
  if (known && kind == static_cast<uint64_t>(Kind::kRefusal)) {
    const auto code = FailureCode(static_cast<int32_t>(fields.Number()));
    // A job that ends may still hold the port of the next one. A proof has passed that check.
    const bool foreign = code == ERROR_RANK_MISMATCH && their_nonce_.empty();
    return Refused(Error(code, connection_.peer(), " refused this rank: it ",
                         Printable(fields.Text(kMostTextBytes), kMostTextBytes)),
                   foreign);
  }
  const std::string digest = fields.Text(sizeof(Digest));
  const Digest wanted = ProofOf(kListenerText, *secret_, claim_, own_nonce_, their_nonce_);
  if (!known || kind != static_cast<uint64_t>(Kind::kWelcome) || !fields.Done() ||
      !IsDigest(digest, wanted)) {
    return Refused(Error(ERROR_RANK_MISMATCH, "what listens at ", connection_.peer(),
                         " does not know the key of this job: set COLLOPS_JOB_KEY to the same text "
                         "in all ranks"),
                   false);
  }
  connection_.LimitFrames(kMostFrameBytes);
  return Proof::kGiven;
}

}  // namespace collops::control
