// SPDX-License-Identifier: Apache-2.0
// Implements Device with the CUDA runtime, and the backend's entry point.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/kernel/cuda/device.h"
#include "core/kernel/cuda/kernels.h"

namespace attnbias {
namespace {

absl::Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error));
  // Clears the error, so that the next call does not report it again.
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

struct Cublas {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasGetStatusString) status_string;
  decltype(&cublasSgemm_v2) sgemm;
  decltype(&cublasDgemm_v2) dgemm;
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// Loads the system's cuBLAS or, on the build machine, the one next to the headers. Returns null if
// this machine has none. Linking against it would cost 200 MB and a fifth of a second for each
// device, even if nothing is multiplied.
const Cublas* LoadCublas() {
  static const std::optional<Cublas> cublas = []() -> std::optional<Cublas> {
    const std::string name = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    Cublas found;
    if (library != nullptr && Find(library, "cublasCreate_v2", &found.create) &&
        Find(library, "cublasDestroy_v2", &found.destroy) &&
        Find(library, "cublasSetStream_v2", &found.set_stream) &&
        Find(library, "cublasSetMathMode", &found.set_math_mode) &&
        Find(library, "cublasGetStatusString", &found.status_string) &&
        Find(library, "cublasSgemm_v2", &found.sgemm) &&
        Find(library, "cublasDgemm_v2", &found.dgemm)) {
      return found;
    }
    return std::nullopt;
  }();
  return cublas.has_value() ? &*cublas : nullptr;
}

using StreamHandle = std::unique_ptr<CUstream_st, decltype(&cudaStreamDestroy)>;

absl::Status ToStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message =
      absl::StrCat("cuBLAS: ", what, ": ", LoadCublas()->status_string(status));
  return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(message)
                                              : absl::InternalError(message);
}

// cuBLAS is column-major and therefore sees every matrix transposed.
template <typename T, typename Gemm>
cublasStatus_t Multiply(Gemm gemm, cublasHandle_t handle, const ProductLaunch& launch) {
  const VectorProduct& product = launch.product;
  const auto columns = static_cast<int>(product.output_columns());
  const auto inner = static_cast<int>(product.input_columns());
  const T one = 1;
  const T zero = 0;
  return gemm(handle, product.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, columns,
              static_cast<int>(product.rows), inner, &one,
              reinterpret_cast<const T*>(launch.vectors), static_cast<int>(product.stride),
              reinterpret_cast<const T*>(launch.input), inner, &zero,
              reinterpret_cast<T*>(launch.out), columns);
}

void Destroy(cublasHandle_t handle) { LoadCublas()->destroy(handle); }
using BlasHandle = std::unique_ptr<cublasContext, decltype(&Destroy)>;

class CudaStream final : public Stream {
 public:
  explicit CudaStream(StreamHandle stream) : stream_(std::move(stream)) {}
  // Waits, since memory used by pending work may be freed next.
  ~CudaStream() override { cudaStreamSynchronize(stream_.get()); }

  absl::Status CopyIn(std::byte* device, const std::byte* host, int64_t bytes) override {
    return ToStatus(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_.get()),
                    "copy to the device");
  }
  absl::Status CopyOut(std::byte* host, const std::byte* device, int64_t bytes) override {
    return ToStatus(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_.get()),
                    "copy from the device");
  }
  absl::Status Launch(const ExpansionLaunch& launch) override {
    return ToStatus(StartKernel(launch, stream_.get()), "expand");
  }
  absl::Status Launch(const ProductLaunch& launch) override {
    if (blas_ == nullptr) ATTNBIAS_RETURN_IF_ERROR(MakeBlas());
    const Cublas& cublas = *LoadCublas();
    return ToStatus(launch.type == DataType::kF64
                        ? Multiply<double>(cublas.dgemm, blas_.get(), launch)
                        : Multiply<float>(cublas.sgemm, blas_.get(), launch),
                    "multiply");
  }
  absl::Status Wait() override { return ToStatus(cudaStreamSynchronize(stream_.get()), "wait"); }

 private:
  absl::Status MakeBlas() {
    const Cublas& cublas = *LoadCublas();
    cublasHandle_t handle = nullptr;
    ATTNBIAS_RETURN_IF_ERROR(ToStatus(cublas.create(&handle), "create"));
    blas_.reset(handle);
    ATTNBIAS_RETURN_IF_ERROR(ToStatus(cublas.set_stream(handle, stream_.get()), "set stream"));
    // Keeps intermediate results at least as wide as the inputs.
    return ToStatus(cublas.set_math_mode(handle, CUBLAS_PEDANTIC_MATH), "set mode");
  }

  const StreamHandle stream_;
  // Created for the first product.
  BlasHandle blas_{nullptr, &Destroy};
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::string description, StreamHandle allocations)
      : description_(std::move(description)), allocations_(std::move(allocations)) {}

  std::string description() const override { return description_; }
  bool has_products() const override { return LoadCublas() != nullptr; }
  absl::StatusOr<SharedMemory> Allocate(int64_t bytes) override {
    void* memory = nullptr;
    ATTNBIAS_RETURN_IF_ERROR(
        ToStatus(cudaMallocAsync(&memory, bytes, allocations_.get()), "allocate"));
    SharedMemory owner(static_cast<std::byte*>(memory), [stream = allocations_](std::byte* data) {
      cudaFreeAsync(data, stream.get());
    });
    // Other streams may use the memory only once this one has reached the allocation.
    ATTNBIAS_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(allocations_.get()), "allocate"));
    return owner;
  }
  absl::StatusOr<SharedMemory> AllocateHost(int64_t bytes) override {
    void* memory = nullptr;
    ATTNBIAS_RETURN_IF_ERROR(
        ToStatus(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "allocate pinned memory"));
    return SharedMemory(static_cast<std::byte*>(memory), &cudaFreeHost);
  }
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    cudaStream_t stream = nullptr;
    ATTNBIAS_RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream"));
    return std::make_unique<CudaStream>(StreamHandle(stream, &cudaStreamDestroy));
  }

 private:
  const std::string description_;
  // Orders allocations from the device's pool. Unlike cudaFree, the pool does not wait for the
  // device.
  const std::shared_ptr<CUstream_st> allocations_;
};

// Lets the device's pool keep some freed memory, and creates the stream that orders allocations.
cudaError_t PrepareAllocations(cudaStream_t* stream) {
  cudaMemPool_t pool = nullptr;
  uint64_t kept_bytes = kMaxPooledBytes;
  cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, 0);
  if (error == cudaSuccess) {
    error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes);
  }
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
  return error;
}

absl::StatusOr<std::unique_ptr<Device>> Open() {
  int count = 0;
  cudaDeviceProp properties;
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    return absl::UnavailableError("no CUDA device: no NVIDIA driver is installed");
  }
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, 0);
  // Creates the device's context.
  if (error == cudaSuccess) error = cudaFree(nullptr);
  cudaStream_t allocations = nullptr;
  if (error == cudaSuccess) error = PrepareAllocations(&allocations);
  if (error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no CUDA device: ", cudaGetErrorString(error)));
  }
  return std::make_unique<CudaDevice>(
      absl::StrCat(properties.name, ", compute capability ", properties.major, ".",
                   properties.minor, ", ", properties.totalGlobalMem >> 20, " MiB"),
      StreamHandle(allocations, &cudaStreamDestroy));
}

}  // namespace
}  // namespace attnbias

extern "C" void attnbias_open_cuda_device(
    absl::StatusOr<std::unique_ptr<attnbias::Device>>* device) {
  *device = attnbias::Open();
}
