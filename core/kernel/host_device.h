// SPDX-License-Identifier: Apache-2.0
// Marks functions that run on the CPU and on a CUDA device from the same lines.
#ifndef ATTNBIAS_CORE_KERNEL_HOST_DEVICE_H_
#define ATTNBIAS_CORE_KERNEL_HOST_DEVICE_H_

#ifdef __CUDACC__
#define ATTNBIAS_HOST_DEVICE __host__ __device__
#else
#define ATTNBIAS_HOST_DEVICE
#endif

#endif  // ATTNBIAS_CORE_KERNEL_HOST_DEVICE_H_
