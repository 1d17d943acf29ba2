// SPDX-License-Identifier: Apache-2.0
#include "server/run.h"

int main(int argc, char** argv) { return attnbias::Run(argc, argv); }
