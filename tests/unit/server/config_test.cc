// SPDX-License-Identifier: Apache-2.0
#include "server/run/config.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "core/kernel/kernel_set.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/fresh_folder.h"

namespace attnbias::config_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::variant<ServerConfig, ExitCode> Parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "attnbias-server");
  return ParseConfig(static_cast<int>(flags.size()), flags.data());
}

ServerConfig Parsed(std::vector<const char*> flags) {
  auto result = Parse(std::move(flags));
  EXPECT_TRUE(std::holds_alternative<ServerConfig>(result));
  return std::get<ServerConfig>(result);
}

// Returns the exit code and the output on standard error.
std::pair<int, std::string> Refused(std::vector<const char*> flags) {
  testing::internal::CaptureStderr();
  auto result = Parse(std::move(flags));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::holds_alternative<ExitCode>(result));
  return {std::get<ExitCode>(result).value, text};
}

TEST(Config, HasTheDocumentedDefaults) {
  const ServerConfig config = Parsed({});
  EXPECT_THAT(config.listen, testing::ElementsAre("[::]:50051"));
  EXPECT_EQ(config.metrics_listen, "[::]:9464");
  EXPECT_GT(config.memory_budget_bytes, 0);
  EXPECT_GE(config.threads, 1);
  EXPECT_FALSE(config.check_config);
}

TEST(Config, ReadsSizesAndDurations) {
  const ServerConfig config = Parsed({"--memory-budget", "512MiB", "--max-tensor-bytes=3k",
                                      "--drain-grace", "1m30s", "--shutdown-delay=0"});
  EXPECT_EQ(config.memory_budget_bytes, int64_t{512} << 20);
  EXPECT_EQ(config.max_tensor_bytes, 3072);
  EXPECT_EQ(config.drain_grace, absl::Seconds(90));
  EXPECT_EQ(config.shutdown_delay, absl::ZeroDuration());
}

TEST(Config, FlagOverridesEnvironmentWhichOverridesDefault) {
  setenv("ATTNBIAS_MAX_CONCURRENT_STREAMS", "7", 1);
  setenv("ATTNBIAS_DRAIN_GRACE", "9s", 1);
  EXPECT_EQ(Parsed({}).transport.max_concurrent_streams, 7);
  EXPECT_EQ(Parsed({}).drain_grace, absl::Seconds(9));
  EXPECT_EQ(Parsed({"--max-concurrent-streams=8"}).transport.max_concurrent_streams, 8);
  unsetenv("ATTNBIAS_MAX_CONCURRENT_STREAMS");
  unsetenv("ATTNBIAS_DRAIN_GRACE");
  EXPECT_EQ(Parsed({}).transport.max_concurrent_streams, 256);
}

// Writes a file that --config reads.
std::string FileOf(const std::string& text) {
  return "--config=" + WriteFile(FreshFolder() / "attnbias_config.toml", text);
}

TEST(Config, FlagAndEnvironmentOverrideTheFile) {
  const std::string file = FileOf(
      "# of all replicas\n"
      "threads = 3\nmax-concurrent-streams = 5\ndrain-grace = \"9s\"\nreflection = false\n"
      "memory-budget = \"64MiB\"\nlisten = [\"127.0.0.1:1\", \"unix:/x\"]\n");
  setenv("ATTNBIAS_MAX_CONCURRENT_STREAMS", "7", 1);
  const ServerConfig config = Parsed({file.c_str(), "--threads=2"});
  unsetenv("ATTNBIAS_MAX_CONCURRENT_STREAMS");
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.transport.max_concurrent_streams, 7);
  EXPECT_EQ(config.drain_grace, absl::Seconds(9));
  EXPECT_FALSE(config.transport.reflection);
  EXPECT_EQ(config.memory_budget_bytes, int64_t{64} << 20);
  EXPECT_THAT(config.listen, testing::ElementsAre("127.0.0.1:1", "unix:/x"));
  EXPECT_THAT(config.effective, HasSubstr("\ndrain-grace=9s\n"));
}

TEST(Config, RejectsInvalidFile) {
  const auto refused = [](const std::string& flag) {
    const auto [code, text] = Refused({flag.c_str()});
    EXPECT_EQ(code, 2);
    return text;
  };
  EXPECT_THAT(refused("--config=/no/such"), HasSubstr("--config: /no/such"));
  EXPECT_THAT(refused(FileOf("shutdown-dealy = 1\n")),
              HasSubstr("got 'shutdown-dealy', want the name of a flag without --"));
  EXPECT_THAT(refused(FileOf("[server]\nthreads = 1\n")),
              HasSubstr("got the table [server], want only flags"));
  EXPECT_THAT(refused(FileOf("check-config = true\n")), HasSubstr("got 'check-config'"));
  EXPECT_THAT(refused(FileOf("threads = 2\noip = true\nthreads = 2\n")), HasSubstr("threads"));
  EXPECT_THAT(refused(FileOf("threads = 4 5\n")), HasSubstr("got 2 values of threads, want one"));
  EXPECT_THAT(refused(FileOf("threads = 4\nthreads = 5\n")), HasSubstr("threads"));
  EXPECT_THAT(refused(FileOf("threads = many\n")),
              HasSubstr("attnbias_config.toml: --threads: got 'many'"));
}

TEST(Config, LastRepeatedFlagWins) {
  const ServerConfig config =
      Parsed({"--threads=2", "--drain-grace=1s", "--threads=5", "--drain-grace=3s"});
  EXPECT_EQ(config.threads, 5);
  EXPECT_EQ(config.drain_grace, absl::Seconds(3));
  EXPECT_THAT(config.effective, HasSubstr("threads=5\n"));
}

TEST(Config, TableFlagsAccumulate) {
  setenv("ATTNBIAS_CHECKPOINT", "m=/m,n=/n", 1);
  const ServerConfig config = Parsed(
      {"--table=a=x.safetensors:w", "--table", "b=y,c=z", "--tables=/t", "--tables-poll=0s"});
  unsetenv("ATTNBIAS_CHECKPOINT");
  EXPECT_EQ(config.tables.folder, "/t");
  EXPECT_EQ(config.tables.tables, (std::vector<std::string>{"a=x.safetensors:w", "b=y", "c=z"}));
  EXPECT_EQ(config.tables.checkpoints, (std::vector<std::string>{"m=/m", "n=/n"}));
  EXPECT_EQ(config.tables_poll, absl::ZeroDuration());
  EXPECT_THAT(config.effective, HasSubstr("table=a=x.safetensors:w,b=y,c=z\n"));
  EXPECT_THAT(config.effective, HasSubstr("checkpoint=m=/m,n=/n\n"));
}

TEST(Config, ListensOnEveryAddressGiven) {
  const ServerConfig config = Parsed({"--listen=:1,unix:/run/a.sock", "--listen", "[::1]:2"});
  EXPECT_THAT(config.listen, testing::ElementsAre(":1", "unix:/run/a.sock", "[::1]:2"));
  EXPECT_THAT(config.effective, HasSubstr("listen=:1,unix:/run/a.sock,[::1]:2\n"));
}

TEST(Config, RejectsSocketPathThatIsTooLong) {
  const std::string longest = "--listen=unix:/" + std::string(106, 'a');
  EXPECT_EQ(Parsed({longest.c_str()}).listen.front().size(), 5u + 107);
  const auto [code, text] = Refused({(longest + "a").c_str()});
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr("a path of 108 bytes, want at most 107"));
}

TEST(Config, ReportsKernelSetInUse) {
  EXPECT_THAT(Parsed({}).effective,
              HasSubstr("\ncpu-isa=" + std::string(SupportedKernelSets().front()->name) + "\n"));
}

TEST(Config, WarnsAboutUnknownVariables) {
  setenv("ATTNBIAS_MEMORY_BUGDET", "1GiB", 1);
  setenv("ATTNBIAS_THREADS", "2", 1);
  const char* const of_clients[] = {"ATTNBIAS_SERVER",         "ATTNBIAS_CLIENT_TLS",
                                    "ATTNBIAS_CLIENT_TLS_CA",  "ATTNBIAS_CLIENT_TLS_CERT",
                                    "ATTNBIAS_CLIENT_TLS_KEY", "ATTNBIAS_CLIENT_TLS_SERVER_NAME",
                                    "ATTNBIAS_CLIENT_TOKEN",   "ATTNBIAS_CLIENT_TOKEN_FILE"};
  for (const char* name : of_clients) setenv(name, "the clients'", 1);
  const std::vector<std::string> warnings = Parsed({}).warnings;
  unsetenv("ATTNBIAS_MEMORY_BUGDET");
  unsetenv("ATTNBIAS_THREADS");
  for (const char* name : of_clients) unsetenv(name);
  EXPECT_THAT(warnings,
              testing::Contains("ATTNBIAS_MEMORY_BUGDET: does not correspond to any flag"));
  EXPECT_THAT(warnings, testing::Not(testing::Contains(testing::AnyOf(
                            HasSubstr("ATTNBIAS_SERVER:"), HasSubstr("ATTNBIAS_CLIENT"),
                            HasSubstr("ATTNBIAS_THREADS")))));
}

TEST(Config, WarnsAboutBudgetAboveMemory) {
  const auto of_budget = testing::Contains(HasSubstr("--memory-budget: got"));
  EXPECT_THAT(Parsed({"--memory-budget=1EiB"}).warnings, of_budget);
  EXPECT_THAT(Parsed({}).warnings, testing::Not(of_budget));
}

TEST(Config, WarnsAboutTokensInPlaintext) {
  const auto of_tokens = testing::Contains(HasSubstr("--tokens: without"));
  EXPECT_THAT(Parsed({"--tokens=t"}).warnings, of_tokens);
  EXPECT_THAT(Parsed({"--tokens=t", "--listen=unix:/s,localhost:1"}).warnings, of_tokens);
  EXPECT_THAT(Parsed({"--tokens=t", "--tls-cert=c", "--tls-key=k"}).warnings,
              testing::Not(of_tokens));
  EXPECT_THAT(Parsed({"--tokens=t", "--listen=unix:/s"}).warnings, testing::Not(of_tokens));
}

struct Bad {
  const char* flag;
  const char* mention;
};

class BadFlag : public testing::TestWithParam<Bad> {};

TEST_P(BadFlag, IsNamedInErrorAndExitsWith2) {
  const auto [code, text] = Refused({GetParam().flag});
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, HasSubstr(GetParam().mention));
}

INSTANTIATE_TEST_SUITE_P(
    Config, BadFlag,
    testing::Values(
        Bad{"--listen=nowhere", "--listen"}, Bad{"--listen=:1,nowhere", "got 'nowhere'"},
        Bad{"--listen=unix:", "want unix:PATH"}, Bad{"--listen=unix://host/path", "want unix:PATH"},
        Bad{"--metrics-listen=unix:/path", "--metrics-listen"},
        Bad{"--metrics-listen=:99999", "--metrics-listen"},
        Bad{"--memory-budget=0", "--memory-budget: got '0', want an integer of at least 1"},
        Bad{"--memory-budget=many", "--memory-budget: got 'many', want an integer"},
        Bad{"--memory-budget=16EiB", "got '16EiB'"},
        Bad{"--drain-grace=-1s", "--drain-grace: got '-1s', want a duration from 0"},
        Bad{"--shutdown-delay=soon", "--shutdown-delay: got 'soon'"},
        Bad{"--write-stall-timeout=0", "--write-stall-timeout: got '0'"},
        Bad{"--threads=0", "--threads: got '0', want an integer in [1, 4096]"},
        Bad{"--threads=many", "got 'many', want an integer in [1, 4096]"},
        Bad{"--max-concurrent-streams=1000001", "want an integer in [1, 1000000]"},
        Bad{"--backend=gpu", "--backend: got 'gpu', want one of auto, cpu, cuda"},
        Bad{"--log-format=xml", "--log-format: got 'xml', want one of text, json"},
        Bad{"--log-level=loud", "--log-level"}, Bad{"--access-log=some", "--access-log"},
        Bad{"--no-such-flag", "--no-such-flag"}));

TEST(Config, HelpExitsWith0) {
  testing::internal::CaptureStdout();
  auto result = Parse({"--help"});
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("ATTNBIAS_MEMORY_BUDGET"));
  EXPECT_EQ(std::get<ExitCode>(result).value, 0);
}

TEST(Config, HelpIsTheSameOnEveryMachine) {
  testing::internal::CaptureStdout();
  Parse({"--help"});
  const std::string help = testing::internal::GetCapturedStdout();
  const ServerConfig here = Parsed({});
  const auto shown = [](const std::string& value, const std::string& variable) {
    return "=" + value + " (Env:" + variable + ")";
  };
  EXPECT_THAT(
      help,
      Not(HasSubstr(shown(std::to_string(here.memory_budget_bytes), "ATTNBIAS_MEMORY_BUDGET"))));
  EXPECT_THAT(help, Not(HasSubstr(shown(std::to_string(here.threads), "ATTNBIAS_THREADS"))));
  EXPECT_THAT(help, Not(HasSubstr(shown(here.cpu_isa, "ATTNBIAS_CPU_ISA"))));
}

}  // namespace
}  // namespace attnbias::config_test
