// SPDX-License-Identifier: Apache-2.0
// A Device without hardware. Kernels run on the CPU, once for every block and thread in the launch,
// and every index is checked. A stream does its work only when it is waited for.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/kernel/cuda/device.h"
#include "core/kernel/cuda/kernel_bodies.h"

namespace attnbias {

// A record of a CpuDevice's work, and the point at which the device fails.
struct CpuDeviceLog {
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> allocated_bytes{0};
  // Number of launches that succeed; the next one breaks the device.
  std::atomic<int64_t> good_launches{int64_t{1} << 40};
  // Maximum number of bytes allocated at any one time.
  std::atomic<int64_t> memory_bytes{int64_t{1} << 40};
};

template <typename Body>
void ForEachThread(int64_t blocks, Body body) {
  for (int64_t block = 0; block < blocks; ++block) {
    for (int thread = 0; thread < kThreadsPerBlock; ++thread) {
      body(block, thread);
    }
  }
}

inline void RunKernel(const ExpansionLaunch& launch) {
  ForEachThread(launch.blocks(), [&](int64_t block, int thread) {
    switch (launch.element_bytes) {
      case 2:
        return ExpandThread<uint16_t>(launch, block, thread);
      case 4:
        return ExpandThread<uint32_t>(launch, block, thread);
      default:
        return ExpandThread<uint64_t>(launch, block, thread);
    }
  });
}

template <typename T>
void RunProduct(const ProductLaunch& launch) {
  const VectorProduct& product = launch.product;
  const auto* const vectors = reinterpret_cast<const T*>(launch.vectors);
  auto* const out = reinterpret_cast<T*>(launch.out);
  for (int64_t row = 0; row < product.rows; ++row) {
    const T* const input = reinterpret_cast<const T*>(launch.input) + row * product.input_columns();
    for (int64_t column = 0; column < product.output_columns(); ++column) {
      T sum = 0;
      for (int64_t i = 0; i < product.input_columns(); ++i) {
        sum +=
            input[i] *
            vectors[product.transposed ? column * product.stride + i : i * product.stride + column];
      }
      out[row * product.output_columns() + column] = sum;
    }
  }
}

inline void RunKernel(const ProductLaunch& launch) {
  launch.type == DataType::kF64 ? RunProduct<double>(launch) : RunProduct<float>(launch);
}

class CpuStream final : public Stream {
 public:
  explicit CpuStream(CpuDeviceLog* log) : log_(*log) {}
  ~CpuStream() override { (void)Wait(); }

  absl::Status CopyIn(std::byte* device, const std::byte* host, int64_t bytes) override {
    return Later([=] { std::memcpy(device, host, bytes); });
  }
  absl::Status CopyOut(std::byte* host, const std::byte* device, int64_t bytes) override {
    return Later([=] { std::memcpy(host, device, bytes); });
  }
  absl::Status Launch(const ExpansionLaunch& launch) override { return LaunchLater(launch); }
  absl::Status Launch(const ProductLaunch& launch) override { return LaunchLater(launch); }
  absl::Status Wait() override {
    for (const auto& task : std::exchange(tasks_, {})) task();
    return std::exchange(error_, absl::OkStatus());
  }

 private:
  absl::Status Later(std::function<void()> task) {
    tasks_.push_back(std::move(task));
    return absl::OkStatus();
  }
  // Like a real device, reports an error in the next wait.
  template <typename Launched>
  absl::Status LaunchLater(const Launched& launch) {
    return Later([this, launch] {
      if (++log_.launches > log_.good_launches) {
        error_ = absl::InternalError("CUDA: the device is broken");
      } else {
        RunKernel(launch);
      }
    });
  }

  CpuDeviceLog& log_;
  std::vector<std::function<void()>> tasks_;
  absl::Status error_;
};

class CpuDevice final : public Device {
 public:
  // `log` must outlive this.
  explicit CpuDevice(CpuDeviceLog* log) : log_(*log) {}

  std::string description() const override { return "a CPU in its place"; }
  bool has_products() const override { return true; }
  absl::StatusOr<SharedMemory> Allocate(int64_t bytes) override {
    if (log_.allocated_bytes + bytes > log_.memory_bytes) {
      return absl::ResourceExhaustedError("CUDA: out of memory");
    }
    log_.allocated_bytes += bytes;
    return SharedMemory(new std::byte[bytes], [&log = log_, bytes](std::byte* memory) {
      log.allocated_bytes -= bytes;
      delete[] memory;
    });
  }
  absl::StatusOr<SharedMemory> AllocateHost(int64_t bytes) override { return Allocate(bytes); }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<CpuStream>(&log_);
  }

 private:
  CpuDeviceLog& log_;
};

}  // namespace attnbias
