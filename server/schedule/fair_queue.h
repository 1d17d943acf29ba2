// SPDX-License-Identifier: Apache-2.0
// A queue that shares time fairly between owners.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attnbias {

// Pops an item from the owner that has used the least time. An owner that returns after a pause
// starts level with the others, not ahead of them. This is start-time fair queueing (Goyal, Vin and
// Cheng, 1996), except that an item's time is charged after the item has run.
//
// Pops an owner's short items before its long ones. While an owner has both, however, one long item
// follows every kShortRun short ones. Items of the same kind keep their order.
//
// Not safe for concurrent use.
template <typename Item>
class FairQueue {
 public:
  using Time = std::chrono::nanoseconds;
  enum Kind : uint8_t { kShort, kLong };

  static constexpr int kShortRun = 8;

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Returns the number of known owners.
  int64_t owners() const { return static_cast<int64_t>(owners_.size()); }

  void Push(const std::string& name, Item item, Kind kind = kShort) {
    OwnerToPush(name).items[kind].push_back(std::move(item));
  }

  // Puts a short item before the owner's other short items.
  void PushFront(const std::string& name, Item item) {
    OwnerToPush(name).items[kShort].push_front(std::move(item));
  }

  // Returns the item that Pop would return. Requires a nonempty queue, as Pop does.
  const Item& Front() const {
    const Owner& owner = std::get<Entry*>(*queue_.begin())->second;
    return owner.items[owner.NextKind()].front();
  }

  Item Pop() { return PopOf(*std::get<Entry*>(*queue_.begin())); }

  // Pops the next item of the first owner for whose next item `fits` returns true, if any.
  template <typename Predicate>
  std::optional<Item> PopFirst(Predicate fits) {
    for (const auto& [used, sequence, entry] : queue_) {
      const Owner& owner = entry->second;
      if (fits(owner.items[owner.NextKind()].front())) return PopOf(*entry);
    }
    return std::nullopt;
  }

  // Charges `owner` for the time that a popped item took. Called once for each popped item.
  void Charge(const std::string& owner, Time time) {
    Entry& entry = *owners_.find(owner);
    const bool waits = entry.second.HasItems();
    if (waits) Dequeue(entry);
    entry.second.used += time;
    --entry.second.running;
    if (waits) Enqueue(entry);
    // Raises the starting level of new owners, so that even many of them cannot pass waiting ones.
    level_ += time / static_cast<int64_t>(queue_.size() + 1);
    // No owner is waiting, so the time used no longer counts against this owner.
    if (empty()) level_ = std::max(level_, entry.second.used);
  }

  // Removes and returns the items that `fits` accepts, as if they had never been pushed.
  template <typename Predicate>
  std::vector<Item> Extract(Predicate fits) {
    std::vector<Item> taken;
    for (Entry& entry : owners_) {
      Owner& owner = entry.second;
      if (!owner.HasItems()) continue;
      for (std::deque<Item>& items : owner.items) {
        const auto rest = std::stable_partition(items.begin(), items.end(),
                                                [&](const Item& item) { return !fits(item); });
        std::move(rest, items.end(), std::back_inserter(taken));
        items.erase(rest, items.end());
      }
      if (!owner.HasItems()) Dequeue(entry);
    }
    size_ -= static_cast<int64_t>(taken.size());
    return taken;
  }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [name, owner] : owners_) {
      for (const std::deque<Item>& items : owner.items) {
        for (const Item& item : items) visit(item);
      }
    }
  }

 private:
  struct Owner {
    // Items, indexed by kind.
    std::deque<Item> items[2];
    // Short items popped since the last long one.
    int run = 0;
    Time used{0};
    uint64_t sequence = 0;
    int64_t running = 0;

    bool HasItems() const { return !items[kShort].empty() || !items[kLong].empty(); }
    Kind NextKind() const {
      if (items[kLong].empty()) return kShort;
      return items[kShort].empty() || run >= kShortRun ? kLong : kShort;
    }
  };
  using Entry = std::pair<const std::string, Owner>;

  Owner& OwnerToPush(const std::string& name) {
    ForgetSome();
    const auto entry = owners_.try_emplace(name).first;
    Owner& owner = entry->second;
    if (!owner.HasItems()) {
      owner.used = std::max(owner.used, level_);
      Enqueue(*entry);
    }
    ++size_;
    return owner;
  }

  Item PopOf(Entry& entry) {
    Owner& owner = entry.second;
    level_ = std::max(level_, owner.used);
    ++owner.running;
    const Kind kind = owner.NextKind();
    const bool passes = kind == kShort && !owner.items[kLong].empty();
    owner.run = passes ? owner.run + 1 : 0;
    Item item = std::move(owner.items[kind].front());
    owner.items[kind].pop_front();
    --size_;
    // Ties go to the owner that has waited longest.
    Dequeue(entry);
    if (owner.HasItems()) Enqueue(entry);
    return item;
  }

  void Enqueue(Entry& entry) {
    entry.second.sequence = next_sequence_++;
    queue_.emplace(entry.second.used, entry.second.sequence, &entry);
  }

  void Dequeue(Entry& entry) { queue_.erase({entry.second.used, entry.second.sequence, &entry}); }

  // Drops owners that have no items and that, if they returned, would start level with the others.
  void ForgetSome() {
    constexpr size_t kFew = 64;
    if (owners_.size() < 2 * queue_.size() + kFew) return;
    std::erase_if(owners_, [this](const Entry& entry) {
      const Owner& owner = entry.second;
      return !owner.HasItems() && owner.running == 0 && owner.used <= level_;
    });
  }

  std::unordered_map<std::string, Owner> owners_;
  // Owners with items; the first is next.
  std::set<std::tuple<Time, uint64_t, Entry*>> queue_;
  uint64_t next_sequence_ = 0;
  // Time that a new owner is assumed to have used.
  Time level_{0};
  int64_t size_ = 0;
};

}  // namespace attnbias
