// SPDX-License-Identifier: Apache-2.0
// A queue in which owners take turns.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attnbias {

// The next item is of the owner who has used the least time; an owner's items
// come out in order. Whoever has been away starts level with the others, not
// ahead of them: start-time fair queueing (Goyal, Vin and Cheng, 1996), but
// that the time an item takes is charged after it has run.
//
// Not safe for concurrent use.
template <typename Item>
class FairQueue {
 public:
  using Time = std::chrono::nanoseconds;

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Owners that are remembered.
  int64_t owners() const { return static_cast<int64_t>(owners_.size()); }

  // Items of `owner`.
  int64_t size_of(const std::string& owner) const {
    const auto found = owners_.find(owner);
    return found == owners_.end()
               ? 0
               : static_cast<int64_t>(found->second.items.size());
  }

  void Push(const std::string& name, Item item) {
    OwnerToPush(name).items.push_back(std::move(item));
  }

  // Puts an item that has begun before the owner's other items.
  void PushFront(const std::string& name, Item item) {
    OwnerToPush(name).items.push_front(std::move(item));
  }

  // Returns the item that Pop would. The queue must not be empty.
  const Item& Front() const {
    return std::get<Entry*>(*places_.begin())->second.items.front();
  }

  // The queue must not be empty.
  Item Pop() { return PopOf(*std::get<Entry*>(*places_.begin())); }

  // Pops the item of the first owner whose next item `fits`; nothing if none
  // does.
  template <typename Predicate>
  std::optional<Item> PopFirst(Predicate fits) {
    for (const auto& [used, place, entry] : places_) {
      if (fits(entry->second.items.front())) return PopOf(*entry);
    }
    return std::nullopt;
  }

  // Says how much time an item has taken that was popped and is `owner`'s; once
  // for each.
  void Charge(const std::string& owner, Time time) {
    Entry& entry = *owners_.find(owner);
    const bool waits = !entry.second.items.empty();
    if (waits) LeavePlace(entry);
    entry.second.used += time;
    --entry.second.running;
    if (waits) TakePlace(entry);
    // As much for each who waits: whoever comes now is not before those who
    // have waited, however many come.
    level_ += time / static_cast<int64_t>(places_.size() + 1);
    // Nobody waited for it.
    if (empty()) level_ = std::max(level_, entry.second.used);
  }

  // Takes out all items for which `wanted` holds.
  template <typename Predicate>
  std::vector<Item> Extract(Predicate wanted) {
    std::vector<Item> taken;
    for (Entry& entry : owners_) {
      std::deque<Item>& items = entry.second.items;
      if (items.empty()) continue;
      const auto rest = std::stable_partition(
          items.begin(), items.end(),
          [&](const Item& item) { return !wanted(item); });
      std::move(rest, items.end(), std::back_inserter(taken));
      items.erase(rest, items.end());
      if (items.empty()) LeavePlace(entry);
    }
    size_ -= static_cast<int64_t>(taken.size());
    return taken;
  }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [name, owner] : owners_) {
      for (const Item& item : owner.items) visit(item);
    }
  }

 private:
  struct Owner {
    std::deque<Item> items;
    Time used{0};
    uint64_t place = 0;
    int64_t running = 0;
  };
  using Entry = std::pair<const std::string, Owner>;

  Owner& OwnerToPush(const std::string& name) {
    ForgetSome();
    const auto entry = owners_.try_emplace(name).first;
    Owner& owner = entry->second;
    if (owner.items.empty()) {
      owner.used = std::max(owner.used, level_);
      TakePlace(*entry);
    }
    ++size_;
    return owner;
  }

  Item PopOf(Entry& entry) {
    Owner& owner = entry.second;
    level_ = std::max(level_, owner.used);
    ++owner.running;
    Item item = std::move(owner.items.front());
    owner.items.pop_front();
    --size_;
    // An owner that has used as much comes after those that wait already.
    LeavePlace(entry);
    if (!owner.items.empty()) TakePlace(entry);
    return item;
  }

  void TakePlace(Entry& entry) {
    entry.second.place = next_place_++;
    places_.emplace(entry.second.used, entry.second.place, &entry);
  }

  void LeavePlace(Entry& entry) {
    places_.erase({entry.second.used, entry.second.place, &entry});
  }

  // Those who have nothing here and would start level with the others.
  void ForgetSome() {
    constexpr size_t kFew = 64;
    if (owners_.size() < 2 * places_.size() + kFew) return;
    std::erase_if(owners_, [this](const Entry& entry) {
      const Owner& owner = entry.second;
      return owner.items.empty() && owner.running == 0 && owner.used <= level_;
    });
  }

  std::unordered_map<std::string, Owner> owners_;
  // Of owners who have items; the first is next.
  std::set<std::tuple<Time, uint64_t, Entry*>> places_;
  uint64_t next_place_ = 0;
  // What whoever comes is taken to have used.
  Time level_{0};
  int64_t size_ = 0;
};

}  // namespace attnbias
