// Transfers are started early and waited for late, as many bytes at once as the window allows.
//
//   %m0 = transfer %a.m {to = "device"}           %f0 = start transfer %a.m {to = "device"}
//   %m1 = fused @k %m0, ...                       %g0 = start transfer %b.m {to = "device"}     reads the next
//   %m2 = transfer %m1 {to = "nvme"}              %m0 = wait %f0
//   assign %a.m, %m2                       ->     %m1 = fused @k %m0, ...                       while this is updated
//   %n0 = transfer %b.m {to = "device"}           %f1 = start transfer %m1 {to = "nvme"}        and the last is written
//   ...                                           ...
//
// A group is a transfer to the device and those that take back what is made of it. A group's bytes are taken from the start of
// its first transfer to the end of its last one; as a new group starts, the oldest ones are waited for until it fits.
#include "ir/Builder.h"
#include "passes/Pass.h"
#include "passes/zero/Zero.h"
#include <algorithm>

using namespace zcc;

/// So many of the largest group: one is read, one updated, one written.
constexpr int64_t kGroupsAtOnce = 3;
/// Below it small transfers would wait for the disk's latency, one by one.
constexpr int64_t kLeastWindow = 16 << 20;

namespace {
struct Group {
  Node *in;
  Node *head; ///< the first node that reads it; once it is started, the first that waits for it
  int64_t bytes = 0;
  llvm::SmallVector<Node *, 2> out; ///< what takes it back; empty once it is waited for
};
} // namespace

static bool isTransfer(const Node &n) { return n.op->structural == Structural::Transfer; }

static int64_t bytesOf(const Node &transfer) {
  int64_t bytes = 0;
  for (auto &r : transfer.results)
    bytes += r->type.localBytes();
  return bytes;
}

/// The first node that reads any result.
static Node *firstReader(const Node &n, const llvm::DenseMap<const Node *, int> &at) {
  Node *first = nullptr;
  for (auto &r : n.results)
    if (Node *user = firstUser(*r, at); user && (!first || at.lookup(user) < at.lookup(first)))
      first = user;
  return first;
}

/// Where the last of what a transfer reads is made; -1 of globals.
static int madeAt(const Node &transfer, const llvm::DenseMap<const Node *, int> &at) {
  int last = -1;
  for (Value *v : transfer.operands()) {
    while (v->def && v->def->op->view)
      v = v->def->operand(0);
    last = std::max(last, v->def ? at.lookup(v->def) : -1);
  }
  return last;
}

/// The transfers to the device, in the order of their first users.
static std::vector<Group> groupsOf(Function &f, const llvm::DenseMap<const Node *, int> &at) {
  std::vector<Group> groups;
  for (auto &n : f.nodes) {
    if (!isTransfer(*n) || n->result()->type.space != Space::Device)
      continue;
    if (Node *first = firstReader(*n, at))
      groups.push_back({n.get(), first, bytesOf(*n), {}});
  }
  llvm::stable_sort(groups, [&](const Group &a, const Group &b) { return at.lookup(a.head) < at.lookup(b.head); });
  return groups;
}

/// What is transferred from the device belongs to the last group that was read before it.
static std::vector<Node *> addTransfersBack(Function &f, std::vector<Group> &groups,
                                            const llvm::DenseMap<const Node *, int> &at) {
  std::vector<Node *> others;
  for (auto &n : f.nodes) {
    if (!isTransfer(*n) || n->result()->type.space == Space::Device)
      continue;
    auto behind = llvm::partition_point(groups, [&](const Group &g) { return at.lookup(g.head) < at.lookup(n.get()); });
    if (behind == groups.begin())
      others.push_back(n.get());
    else
      std::prev(behind)->out.push_back(n.get());
  }
  return others;
}

/// The views that a transfer reads go where it goes.
static void moveViews(Node &n, Node *before) {
  for (Value *v : n.operands())
    for (Node *at = before; v->def && v->def->op->view; v = v->def->operand(0)) {
      v->def->moveBefore(at);
      at = v->def;
    }
}

/// Its results are waited for, and assigned, before `before` (nullptr: at the end).
static void waitBefore(Function &f, Node &n, Node *before) {
  llvm::SmallVector<Node *, 4> users;
  for (auto &r : n.results)
    for (auto &u : r->uses)
      if (assigns(*u.node))
        users.push_back(u.node);
  for (Node *u : users)
    u->moveBefore(before);
  startAt(f, n, &n, positions(f));
}

llvm::Expected<bool> zcc::scheduleTransfers(Module &m, PassContext &) {
  bool changed = false;
  for (auto &f : m.functions) {
    if (!f->isEntry())
      continue;
    auto at = positions(*f);
    std::vector<Group> groups = groupsOf(*f, at);
    std::vector<Node *> others = addTransfersBack(*f, groups, at);
    int64_t window = kLeastWindow;
    for (const Group &g : groups)
      window = std::max(window, kGroupsAtOnce * g.bytes);
    // Group k starts where group `place` is first read; those before `oldest` are waited for.
    size_t place = 0, oldest = 0;
    int64_t unread = 0, taken = 0;                  // of groups [place, k], and of [oldest, k]
    std::vector<std::pair<size_t, size_t>> retired; // group, and the one whose start waits for it
    std::vector<size_t> placeOf;
    for (size_t k = 0; k < groups.size(); ++k) {
      unread += groups[k].bytes;
      taken += groups[k].bytes;
      auto mustWait = [&] { return unread > window || at.lookup(groups[place].head) < madeAt(*groups[k].in, at); };
      for (; place < k && mustWait(); ++place)
        unread -= groups[place].bytes;
      for (; taken > window && oldest < place; ++oldest) {
        taken -= groups[oldest].bytes;
        retired.push_back({oldest, k});
      }
      placeOf.push_back(place);
    }
    for (size_t k = 0; k < groups.size(); ++k) {
      Node *before = groups[placeOf[k]].head;
      for (auto [group, by] : retired)
        if (by == k)
          for (Node *out : groups[group].out)
            waitBefore(*f, *out, before);
      moveViews(*groups[k].in, before);
      Node *start = startAt(*f, *groups[k].in, before, positions(*f));
      groups[k].head = firstReader(*start, positions(*f));
    }
    for (; oldest < groups.size(); ++oldest)
      for (Node *out : groups[oldest].out)
        waitBefore(*f, *out, nullptr);
    for (Node *out : others)
      startAt(*f, *out, out, positions(*f));
    changed |= !groups.empty() || !others.empty();
  }
  return changed;
}
