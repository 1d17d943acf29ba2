// SPDX-License-Identifier: Apache-2.0
// The program: from its arguments to its exit code.
#ifndef ATTNBIAS_SERVER_RUN_H_
#define ATTNBIAS_SERVER_RUN_H_

namespace attnbias {

int Run(int argc, char** argv);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_RUN_H_
