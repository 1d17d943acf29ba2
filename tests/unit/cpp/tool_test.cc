// SPDX-License-Identifier: Apache-2.0
// Tests the attnbias tool from its arguments to its exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "client/cli/heat_map.h"
#include "client/cli/spec_fields.h"
#include "tests/unit/cpp/certificates.h"
#include "tests/unit/cpp/fake_server.h"
#include "tests/unit/cpp/security_folder.h"
#include "tests/unit/support/fresh_folder.h"

namespace attnbias::tool_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns the answer to a request: parts of the same shape, one after another.
v1::TensorHeader MakeAnswer(const v1::TensorSpec& spec, const std::vector<std::string>& names,
                            v1::Form form, const std::vector<int64_t>& shape,
                            int64_t first_relative_position = 0) {
  v1::TensorHeader header = MakeHeader("", "abc");
  header.clear_parts();
  *header.mutable_resolved_spec() = spec;
  for (const std::string& name : names) {
    v1::TensorPart* part = header.add_parts();
    part->set_name(name);
    part->set_form(form);
    part->set_data_type(spec.output().data_type() == v1::DATA_TYPE_F16 ? v1::DATA_TYPE_F16
                                                                       : v1::DATA_TYPE_F32);
    part->mutable_shape()->Assign(shape.begin(), shape.end());
    part->set_first_relative_position(first_relative_position);
    int64_t bytes = ElementSize(part->data_type());
    for (const int64_t length : shape) bytes *= length;
    part->set_offset(header.total_bytes());
    part->set_size_bytes(bytes);
    header.set_total_bytes(header.total_bytes() + bytes);
  }
  return header;
}

// Sends such an answer with a payload of zeros.
Script Answers(const std::vector<std::string>& names, v1::Form form,
               const std::vector<int64_t>& shape, int64_t first_relative_position = 0) {
  return [=](const FakeStream& stream) {
    const v1::TensorHeader header =
        MakeAnswer(stream.request.spec(), names, form, shape, first_relative_position);
    return stream.SendAll(std::string(static_cast<size_t>(header.total_bytes()), '\0'), header);
  };
}

// Answers requests from ToolTest::Get.
Script AnswersOfHeads(int64_t heads) {
  return Answers({"diagonals"}, v1::FORM_TOEPLITZ, {heads, 3}, -1);
}

class ToolTest : public ::testing::Test {
 protected:
  // Runs the tool with this command line against the fake server.
  int Run(const std::string& line) {
    return RunAlone(absl::StrCat("--server ", server_.target(), " ", line));
  }

  // Runs `get` for an ALiBi bias, with additional arguments.
  int Get(const std::string& more) {
    return Run("get alibi --query-length 2 --key-length 2 " + more);
  }

  int RunAlone(const std::string& line) {
    out_.str("");
    err_.str("");
    return RunTool(absl::StrSplit(line, ' ', absl::SkipEmpty()), {.out = out_, .err = err_});
  }

  FakeServer server_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ToolTest, HealthSetsExitCode) {
  using Response = grpc::health::v1::HealthCheckResponse;
  EXPECT_EQ(Run("health"), 0);
  EXPECT_EQ(out_.str(), "SERVING\n");
  server_.set_health(Response::NOT_SERVING);
  EXPECT_EQ(Run("health"), 1);
  EXPECT_EQ(out_.str(), "NOT_SERVING\n");
  server_.set_health(Response::UNKNOWN);
  EXPECT_EQ(Run("health"), 1);
  EXPECT_EQ(Run("health other"), 1);
  EXPECT_EQ(err_.str(), "attnbias: NOT_FOUND: no service other\n");
}

TEST_F(ToolTest, UnreachableServerIsNotHealthy) {
  EXPECT_EQ(RunAlone("health --server 127.0.0.1:1"), 1);
  EXPECT_THAT(err_.str(), StartsWith("attnbias: UNAVAILABLE: nothing is answering at "
                                     "127.0.0.1:1: is the server running? Start one with "
                                     "attnbias-server ("));
  EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << "one line";
}

TEST_F(ToolTest, WaitForServerIsReportedOnce) {
  EXPECT_EQ(RunAlone("info --server 127.0.0.1:1 --connect-timeout 3"), 1);
  EXPECT_THAT(err_.str(), StartsWith("attnbias: nothing is answering at 127.0.0.1:1: "));
  const std::string notice = "trying 127.0.0.1:1 again\n";
  EXPECT_NE(err_.str().find(notice), std::string::npos);
  EXPECT_EQ(err_.str().find(notice), err_.str().rfind("trying"));
  EXPECT_THAT(err_.str(), HasSubstr("attnbias: UNAVAILABLE: "));
}

TEST_F(ToolTest, InvalidTargetIsExitCode2) {
  EXPECT_EQ(RunAlone("health --server localhost:x"), 2);
  EXPECT_EQ(err_.str(),
            "attnbias: target: got \"localhost:x\", want host, host:port, "
            "[IPv6]:port, unix:/path or another gRPC target\n");
}

TEST_F(ToolTest, UnwritableStandardOutputIsExitCode1) {
  std::ofstream full("/dev/full");
  EXPECT_EQ(RunTool({"list"}, {.out = full, .err = err_}), 1);
  EXPECT_EQ(err_.str(), "attnbias: standard output: cannot write\n");
}

TEST_F(ToolTest, ReadsServerFromEnvironment) {
  ::setenv("ATTNBIAS_SERVER", server_.target().c_str(), 1);
  EXPECT_EQ(RunAlone("health"), 0);
  ::unsetenv("ATTNBIAS_SERVER");
}

class SecureToolTest : public ToolTest, protected SecurityFolder {
 protected:
  SecureToolTest() {
    std::ofstream(Path("ca")) << authority_.pem();
    std::ofstream(Path("cert")) << own_.certificate;
    std::ofstream(Path("key")) << own_.key;
    std::ofstream(Path("token")) << "abc";
  }

  int RunSecurely(const std::string& line) {
    return RunAlone(absl::StrCat("--server ", secure_.target(), " ", line));
  }

  std::shared_ptr<grpc::ServerCredentials> Credentials(const Identity& identity) const {
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = authority_.pem();
    options.pem_key_cert_pairs.push_back(
        {.private_key = identity.key, .cert_chain = identity.certificate});
    return grpc::SslServerCredentials(options);
  }

  const Authority authority_;
  const Identity own_ = authority_.Sign("me");
  FakeServer secure_{Credentials(authority_.Sign("server"))};
};

TEST_F(SecureToolTest, ReadsCertificatesAndTokenFromFlags) {
  EXPECT_EQ(RunSecurely(absl::StrCat("health --tls-ca ", Path("ca"), " --tls-cert ", Path("cert"),
                                     " --tls-key ", Path("key"), " --token-file ", Path("token"))),
            0)
      << err_.str();
  EXPECT_EQ(secure_.callers().back().authorization, "Bearer abc");
  EXPECT_EQ(secure_.callers().back().certificate_name, "me");
}

TEST_F(SecureToolTest, FlagOverridesEnvironment) {
  FakeServer server(Credentials(authority_.Sign("server", "DNS:attnbias.example")));
  const std::string line = "health --server " + server.target();
  ::setenv("ATTNBIAS_CLIENT_TLS_CA", Path("ca").c_str(), 1);
  ::setenv("ATTNBIAS_CLIENT_TLS_SERVER_NAME", "other.example", 1);
  EXPECT_EQ(RunAlone(line), 1);
  EXPECT_EQ(RunAlone(line + " --tls-server-name attnbias.example"), 0) << err_.str();
  EXPECT_EQ(Run("--tls=false health"), 0) << err_.str();
}

// The flag alone enables TLS with the authorities that the system trusts.
TEST_F(SecureToolTest, ServerNameImpliesTls) {
  EXPECT_EQ(Run("health --tls-server-name localhost"), 1);
  EXPECT_THAT(err_.str(), HasSubstr("not over TLS: leave out tls ("));
}

TEST_F(SecureToolTest, UnusableFileIsExitCode2) {
  EXPECT_EQ(RunSecurely("health --tls-ca " + Path("token")), 2);
  EXPECT_EQ(err_.str(), "attnbias: tls.ca_file: got \"" + Path("token") +
                            "\", want a PEM file with certificates\n");
}

TEST_F(ToolTest, InfoPrintsServerInfo) {
  EXPECT_EQ(Run("info"), 0);
  EXPECT_THAT(out_.str(), StartsWith("version    1.2.3\nbackends   "));
  EXPECT_THAT(out_.str(), HasSubstr("\nmax_tensor_bytes  0\n"));
  EXPECT_EQ(Run("info --json"), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\"version\": \"1.2.3\""));
}

TEST_F(ToolTest, TablesListsUsableOptions) {
  EXPECT_EQ(Run("tables"), 0);
  EXPECT_THAT(out_.str(), StartsWith("table 0\n  bf16 [32, 8] of f.safetensors:w\n"
                                     "  sha256:ab12\n"
                                     "  t5 num_heads=8 bidirectional=false "
                                     "table=name:table 0 bucket_rule=float32_log\n"
                                     "table 1\n  bf16 [32, 8] of"));
}

// Scripts that read standard output get no table.
TEST_F(ToolTest, TablesReportsAbsenceOfTables) {
  server_.set_has_tables(false);
  EXPECT_EQ(Run("tables"), 0);
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(err_.str(),
            "attnbias: no tables found; the server has mounted none, or its "
            "policy hides them\n");
}

TEST_F(ToolTest, ListFollowsTheContract) {
  EXPECT_EQ(RunAlone("list"), 0);
  for (const char* line : {"sinusoidal\n",
                           "int32 in [1, 65536]\n",
                           "double in [1, 1e+18]\n",
                           "  axes.N.ladder.frequencies ",
                           "double,...\n",
                           "interleaved | sines_cosines | cosines_sines\n",
                           "detr_sinusoidal\n",
                           "  height      required      double in [1e-06, 1000000000000]\n",
                           "t5\n",
                           "  bidirectional required               bool\n",
                           "  table_layout  optional               buckets_heads | "
                           "heads_buckets\n",
                           "  num_heads     required without table int32 in [1, 65536]\n",
                           "  table         optional               table [num_buckets, "
                           "num_heads]\n",
                           "alibi\n",
                           "  alibi_bias_max default 8               double in (0, 1024], not "
                           "with "
                           "slopes\n",
                           "  slopes         optional                double,... [num_heads]\n",
                           "sandwich\n",
                           "  num_heads required      int32 in",
                           "kerple\n",
                           "  kernel    required               log | power\n",
                           "swin_v2\n",
                           "  pretrained_window           optional                int32,... in "
                           "[1, 256] [window]\n",
                           "  reset_class_token     default false",
                           "  layers.N.weight             required                table [out, "
                           "in]\n"}) {
    EXPECT_THAT(out_.str(), HasSubstr(line));
  }
}

TEST_F(ToolTest, ListShowsRequiredFieldsOfOptionalMessages) {
  EXPECT_EQ(RunAlone("list rotary"), 0);
  EXPECT_THAT(out_.str(), testing::ContainsRegex("\n  yarn.factor +required with yarn +double"));
  EXPECT_THAT(out_.str(), testing::ContainsRegex("\n  longrope.factor +optional +double"));
}

TEST_F(ToolTest, ListShowsExpansionOfPresets) {
  EXPECT_EQ(RunAlone("list transformer_xl"), 0);
  EXPECT_EQ(out_.str(),
            "transformer_xl\n"
            "  dim       required      int32 in [1, 65536]\n"
            "  base      default 10000 double in [1, 1e+18]\n"
            "  clamp_len optional      int64 in [1, 1099511627776]\n"
            "  = relative_sinusoidal columns=sines_cosines causal=true\n");
  EXPECT_EQ(RunAlone("list conformer --json"), 0);
  const auto list = nlohmann::json::parse(out_.str())["encodings"];
  EXPECT_EQ(list[0]["name"], "conformer");
  EXPECT_EQ(list[0]["preset_of"], "relative_sinusoidal columns=interleaved");
}

TEST_F(ToolTest, ListShowsOnlyNamedEncodings) {
  EXPECT_EQ(RunAlone("list t5 sandwich"), 0);
  EXPECT_THAT(out_.str(), StartsWith("t5\n  num_heads "));
  EXPECT_THAT(out_.str(), HasSubstr("\nsandwich\n  num_heads "));
  EXPECT_THAT(out_.str(), Not(HasSubstr("alibi")));
  EXPECT_EQ(RunAlone("list t6"), 2);
  EXPECT_THAT(err_.str(), StartsWith("attnbias: encoding: got \"t6\", want"));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ToolTest, DescribeShowsTheHeader) {
  const DescribeScript describe = [](v1::DescribeTensorResponse* response) {
    v1::TensorSpec spec;
    spec.mutable_alibi()->set_num_heads(1);
    spec.mutable_pair()->set_query_length(4);
    spec.mutable_pair()->mutable_queries()->set_end(4);
    spec.mutable_pair()->set_key_length(6);
    spec.mutable_pair()->set_query_offset(5);
    spec.mutable_output()->mutable_mask()->set_window_left(1);
    v1::TensorHeader* header = response->mutable_header();
    *header = MakeAnswer(spec, {"diagonals"}, v1::FORM_TOEPLITZ, {1, 9}, -8);
    v1::Range* rows = header->add_fully_masked_rows();
    rows->set_begin(2);
    rows->set_end(4);
    v1::DerivedValue* derived = header->add_derived();
    derived->set_name("slopes");
    derived->add_values(0.5);
    return grpc::Status::OK;
  };
  server_.ThenDescribe(describe);
  server_.ThenDescribe(describe);
  const std::string line =
      "describe alibi num_heads=1 --query-length 4 --key-length 6 "
      "--query-offset 5 --window-left 1";
  EXPECT_EQ(Run(line), 0) << err_.str();
  EXPECT_EQ(out_.str(),
            absl::StrCat("diagonals  [1, 9]  f32  toeplitz  36 bytes\n"
                         "first relative position  -8\n"
                         "fingerprint  ",
                         Fingerprint("abc"), "\nencoding fingerprint  ", Fingerprint("encoding"),
                         "\n"
                         "total  36 bytes\n"
                         "fully masked queries  2:4\n"
                         "slopes  0.5\n"));
  EXPECT_EQ(Run(line + " --json"), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("\"total_bytes\": \"36\""));
  EXPECT_THAT(out_.str(), HasSubstr("\"fingerprint\": \"" + Fingerprint("abc")));
}

// Every command that prints data can print JSON, as a single value.
TEST_F(ToolTest, PrintsJsonForScripts) {
  const auto parsed = [this] {
    return nlohmann::json::parse(out_.str(), nullptr,
                                 /*allow_exceptions=*/false);
  };
  server_.set_health(grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Run("health --json"), 1);
  EXPECT_EQ(parsed()["status"], "NOT_SERVING");
  EXPECT_EQ(Run("info --json"), 0);
  EXPECT_EQ(parsed()["version"], "1.2.3");
  EXPECT_EQ(parsed()["limits"].is_null(), true);  // the server sent none
  EXPECT_EQ(Run("tables --json"), 0);
  EXPECT_EQ(parsed()["tables"].size(), 3);
  EXPECT_EQ(parsed()["tables"][2]["name"], "table 2");
  server_.set_has_tables(false);
  EXPECT_EQ(Run("tables --json"), 0);
  EXPECT_EQ(parsed()["tables"], nlohmann::json::array());
  EXPECT_EQ(RunAlone("list --json"), 0);
  EXPECT_EQ(parsed()["encodings"].size(), Encodings().size());
  EXPECT_EQ(RunAlone("list alibi rotary --json"), 0);
  const nlohmann::json list = parsed()["encodings"];
  EXPECT_EQ(list[0]["name"], "alibi");
  EXPECT_EQ(list[0]["extent"], "pair");
  EXPECT_EQ(list[0]["fields"][0], nlohmann::json::parse(R"({"name": "num_heads", "type": "int32",
                                      "required": false, "list": false,
                                      "rule": {"min": 1, "max": 65536,
                                               "given_by": "slopes"}})"));
  EXPECT_EQ(list[0]["fields"][3]["values"][1], "causal");
  EXPECT_EQ(list[0]["fields"][3]["rule"]["default"], "ALIBI_VARIANT_SYMMETRIC");
  EXPECT_EQ(list[1]["fields"][4]["name"], "linear.factor");
  EXPECT_EQ(list[1]["fields"][4]["required"], false);
  server_.Then(AnswersOfHeads(8));
  EXPECT_EQ(Get("--json"), 0) << err_.str();
  EXPECT_EQ(parsed()["parts"][0]["shape"], nlohmann::json::array({"8", "3"}));
  EXPECT_EQ(parsed()["parts"][0]["offset"], "0");
  const std::string path = FreshFolder() / "out.npy";
  server_.Then(AnswersOfHeads(8));
  EXPECT_EQ(Get("--json --out " + path), 0) << err_.str();
  EXPECT_EQ(parsed()["total_bytes"], "96");
  EXPECT_EQ(std::filesystem::file_size(path), 128u + 96u);
  EXPECT_EQ(Get("--json --out -"), 2);
  EXPECT_THAT(err_.str(), StartsWith("attnbias: --json: given together with --out -"));
}

// Would rename a terminal's window, start a new line, and reverse the text direction.
constexpr char kEscapes[] = "\x1b]0;owned\x07\n\u202e\u009b";
constexpr char kEscaped[] = "\\x1b]0;owned\\x07\\x0a\\xe2\\x80\\xae\\xc2\\x9b";

TEST_F(ToolTest, EscapesServerText) {
  server_.ThenDescribe([](v1::DescribeTensorResponse* response) {
    v1::TensorSpec resolved;
    resolved.mutable_t5()->set_num_heads(8);
    resolved.mutable_t5()->mutable_table()->set_name("w");
    resolved.mutable_pair()->set_query_length(2);
    resolved.mutable_pair()->set_key_length(2);
    *response->mutable_header() =
        MakeAnswer(resolved, {"diagonals"}, v1::FORM_TOEPLITZ, {8, 3}, -1);
    response->mutable_header()->add_derived()->set_name(kEscapes);
    return grpc::Status::OK;
  });
  EXPECT_EQ(Run("describe t5 table=name:w --query-length 2 --key-length 2"), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat("\n", kEscaped, "  ")));
  server_.set_table_name(kEscapes);
  EXPECT_EQ(Run("tables"), 0) << err_.str();
  EXPECT_THAT(out_.str(), StartsWith(absl::StrCat(kEscaped, "0\n  bf16")));
  EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat("name:", kEscaped, "0")));
}

TEST_F(ToolTest, GetSendsTheRequest) {
  server_.Then(Answers({"dense"}, v1::FORM_DENSE, {1, 1, 2}));
  EXPECT_EQ(Run("get alibi num_heads=1 slopes=-1,2 --query-length 4096 "
                "--queries 4095:4096 --query-offset -5 --key-positions -3,4 "
                "--data-type f16 --causal"),
            0)
      << err_.str();
  const v1::TensorSpec spec = server_.requests().at(0).spec();
  EXPECT_EQ(spec.alibi().slopes(0), -1);
  EXPECT_EQ(spec.pair().queries().begin(), 4095);
  EXPECT_EQ(spec.pair().query_offset(), -5);
  EXPECT_EQ(spec.pair().key_positions().positions(0), -3);
  EXPECT_EQ(spec.output().data_type(), v1::DATA_TYPE_F16);
  EXPECT_TRUE(spec.output().mask().causal());
  EXPECT_EQ(out_.str(), absl::StrCat("            0            0\n"
                                     "dense  [1, 1, 2]  f16  dense  4 bytes\n"
                                     "fingerprint  ",
                                     Fingerprint("abc"), "\n"));
}

TEST_F(ToolTest, HeadsAreLabelledWithTheirIndices) {
  server_.Then(AnswersOfHeads(2));
  EXPECT_EQ(Get("--heads 5:7"), 0) << err_.str();
  EXPECT_THAT(out_.str(), StartsWith("head 5                0            0            0\n"
                                     "head 6                0            0            0\n"));
}

TEST_F(ToolTest, GetWritesRawBytesToStandardOutput) {
  const std::string payload = MakePayload(4000);
  for (int i = 0; i < 3; ++i) {
    server_.Then([=](const FakeStream& stream) {
      return stream.SendAll(
          payload, MakeAnswer(stream.request.spec(), {"cos", "sin"}, v1::FORM_TABLE, {125, 4}));
    });
  }
  const auto get = [this](const std::string& more) {
    return Run("get rotary head_dim=4 --positions 125 --out - " + more);
  };
  EXPECT_EQ(get(""), 0) << err_.str();
  EXPECT_EQ(out_.str(), payload);
  EXPECT_EQ(get("--part sin"), 0) << err_.str();
  EXPECT_EQ(out_.str(), payload.substr(2000));
  EXPECT_EQ(get("--part row"), 1);
  EXPECT_EQ(err_.str(), "attnbias: --part: got row, want one of cos, sin\n");
}

TEST_F(ToolTest, UnwritableFileErrorHasNoStatusCode) {
  server_.Then(AnswersOfHeads(8));
  EXPECT_EQ(Get("--out /no/such/folder/t.npy"), 1);
  EXPECT_EQ(err_.str(),
            "attnbias: /no/such/folder/t.npy: cannot create: No such file or "
            "directory\n");
}

TEST_F(ToolTest, ServerErrorIsExitCode1) {
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field("spec.alibi.num_heads");
  violation->set_description("got 0, want an integer in [1, 65536]");
  server_.Then([=](const FakeStream&) {
    return WithDetail(grpc::StatusCode::INVALID_ARGUMENT, "bad alibi", bad);
  });
  EXPECT_EQ(Get("num_heads=0"), 1);
  EXPECT_EQ(err_.str(),
            "attnbias: INVALID_ARGUMENT: bad alibi\n"
            "  spec.alibi.num_heads: got 0, want an integer in [1, 65536]\n");
  EXPECT_EQ(out_.str(), "");
  server_.Then([=](const FakeStream&) {
    return WithDetail(grpc::StatusCode::INVALID_ARGUMENT, "spec.alibi.num_heads: got 0", bad);
  });
  EXPECT_EQ(Get("num_heads=0"), 1);
  EXPECT_EQ(err_.str(), "attnbias: INVALID_ARGUMENT: spec.alibi.num_heads: got 0\n");
}

// An invalid command line exits with code 2, without calling the server.
TEST_F(ToolTest, InvalidCommandLineIsExitCode2) {
  for (const char* line : {"",
                           "fetch",
                           "get",
                           "get alibaba",
                           "get alibi heads=1",
                           "get alibi --keys x",
                           "get alibi --what",
                           "nosuch --help",
                           "get alibi --what --help",
                           "get alibi --positions 4",
                           "get alibi --query-length 4 --query-length 4",
                           "get alibi --out x.pt",
                           "get alibi --query-length 4 --key-length 4 --data-type bf16 --out x.npy",
                           "get t5 table=@no-such-file.npy",
                           "get alibi --window-left many",
                           "show alibi --head -1",
                           "show alibi --heads 1",
                           "show alibi --png x",
                           "health --timeout 0",
                           "health --connect-timeout 0"}) {
    EXPECT_EQ(Run(line), 2) << line;
    EXPECT_NE(err_.str(), "") << line;
  }
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(ToolTest, UsageErrorsPointToHelp) {
  EXPECT_EQ(Run("get alibi num_heads=8 --query-len 4"), 2);
  EXPECT_EQ(err_.str(), "attnbias: --query-len: no such argument; see --help\n");
  EXPECT_EQ(Run("fetch --json"), 2);
  EXPECT_EQ(err_.str(), "attnbias: fetch --json: no such argument; see --help\n");
  EXPECT_EQ(Run("show"), 2);
  EXPECT_EQ(err_.str(), "attnbias: encoding is required; see --help\n");
  EXPECT_EQ(Run("get alibi --out a.pt"), 2);
  EXPECT_EQ(err_.str(),
            "attnbias: --out: got a.pt, want a name ending in .npy or .safetensors, or -; "
            "see --help\n");
  EXPECT_EQ(Get("--out a.npy --data-type bf16"), 2);
  EXPECT_EQ(err_.str(), "attnbias: --out: .npy has no bf16; write a .safetensors file\n");
  EXPECT_EQ(Run("show alibi --png a.jpg"), 2);
  EXPECT_EQ(err_.str(), "attnbias: --png: got a.jpg, want a name ending in .png; see --help\n");
}

TEST_F(ToolTest, NamesThePythonPackageForItsCommands) {
  for (const char* line : {"cache", "cache ls --cache x", "cache list"}) {
    EXPECT_EQ(RunAlone(line), 2) << line;
    EXPECT_EQ(err_.str(),
              "attnbias: cache: use python -m attnbias cache, from the Python "
              "package\n");
  }
  EXPECT_EQ(RunAlone("export --config x"), 2);
  EXPECT_THAT(err_.str(), HasSubstr("use python -m attnbias export"));
}

// Returns the completions for the last word in a line, each followed by a space.
std::string Completed(const std::string& line) {
  std::vector<std::string> words = absl::StrSplit(line, ' ');
  words.insert(words.begin(), "__complete");
  std::ostringstream out;
  EXPECT_EQ(RunTool(words, {.out = out, .err = out}), 0) << line;
  return absl::StrReplaceAll(out.str(), {{"\n", " "}});
}

TEST(Completion, OffersCommandsAndTheirArguments) {
  EXPECT_THAT(Completed(""), StartsWith("health get describe show info "));
  EXPECT_EQ(Completed("comp"), "completion ");
  EXPECT_EQ(Completed("completion "), "bash zsh fish ");
  EXPECT_EQ(Completed("--server localhost exp"), "export ");
  EXPECT_EQ(Completed("cache v"), "verify ");
  EXPECT_EQ(Completed("get sandw"), "sandwich ");
  EXPECT_EQ(Completed("list t5 sandw"), "sandwich ");
  EXPECT_EQ(Completed("health "), " ");
}

TEST(Completion, OffersFlagsOnce) {
  EXPECT_EQ(Completed("get alibi --query-l"), "--query-length ");
  EXPECT_EQ(Completed("info --he"), "--help ");
  EXPECT_EQ(Completed("info --serv"), "--server ");
  EXPECT_EQ(Completed("--vers"), "--version ");
  EXPECT_EQ(Completed("cache ls --"), "--help --cache ");
}

TEST(Completion, OffersFieldsOfTheEncoding) {
  EXPECT_EQ(Completed("get alibi "), "num_heads= alibi_bias_max= slopes= variant= ");
  EXPECT_EQ(Completed("get --form dense --causal alibi num_h"), "num_heads= ");
  EXPECT_EQ(Completed("get xlnet b"), "base= ");
  EXPECT_EQ(Completed("get sinusoidal axes.1.sc"), "axes.1.scale= ");
  EXPECT_EQ(Completed("get sinusoidal axes"),
            "axes.0.scale= axes.0.offset= axes.0.length= axes.0.eps= axes.0.ladder.base= "
            "axes.0.ladder.timescales.min= axes.0.ladder.timescales.max= "
            "axes.0.ladder.frequencies= ");
  EXPECT_EQ(Completed("get alibbi "), " ");
}

TEST(Completion, OffersValues) {
  EXPECT_EQ(Completed("get alibi variant=k"), "variant=key_from_start variant=key_from_end ");
  EXPECT_EQ(Completed("get t5 bidirectional="), "bidirectional=true bidirectional=false ");
  EXPECT_EQ(Completed("get t5 table="), "table=@ table=name: table=sha256: ");
  EXPECT_EQ(Completed("get t5 table_layout=h"), "table_layout=heads_buckets ");
  EXPECT_EQ(Completed("get alibi num_heads="), " ");
  EXPECT_EQ(Completed("get alibi --alignment "), "start end ");
  EXPECT_EQ(Completed("get alibi --alignment=e"), "--alignment=end ");
  EXPECT_EQ(Completed("get alibi --key-length "), " ");
  EXPECT_EQ(Completed("get alibi --causal="), " ");
}

TEST(Completion, OffersFilesOfTables) {
  const std::filesystem::path folder = FreshFolder();
  std::filesystem::create_directories(folder / "tables");
  for (const char* name : {"a.npy", "b.safetensors", "c.txt"}) std::ofstream(folder / name);
  const std::string start = absl::StrCat("table=@", folder.string(), "/");
  EXPECT_THAT(absl::StrSplit(Completed("get t5 " + start), ' '),
              ElementsAre(start + "a.npy", start + "b.safetensors", start + "c.txt",
                          start + "tables/", ""));
  EXPECT_EQ(Completed(absl::StrCat("get t5 ", start, "a")), start + "a.npy ");
  EXPECT_EQ(Completed("get t5 table=@/no/such/folder/"), " ");
}

TEST_F(ToolTest, LeavesOtherFilesToTheShell) {
  for (const char* line : {"get alibi --out ro", "show alibi --png=", "cache ls --cache d",
                           "--tls-ca ca health --token-file t"}) {
    EXPECT_EQ(RunAlone(absl::StrCat("__complete ", line)), 1) << line;
    EXPECT_EQ(out_.str(), "");
  }
}

TEST_F(ToolTest, PrintsAScriptForEachShell) {
  EXPECT_EQ(RunAlone("completion bash"), 0);
  EXPECT_THAT(out_.str(), HasSubstr("complete -F _attnbias attnbias\n"));
  EXPECT_EQ(RunAlone("completion zsh"), 0);
  EXPECT_THAT(out_.str(), HasSubstr("compdef _attnbias attnbias\n"));
  EXPECT_EQ(RunAlone("completion fish"), 0);
  EXPECT_THAT(out_.str(), HasSubstr("complete -c attnbias -f -a '(__attnbias)'\n"));
  EXPECT_EQ(RunAlone("completion tcsh"), 2);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ToolTest, ListsAllCommandsInTheHelp) {
  EXPECT_EQ(RunAlone("--help"), 0);
  for (const char* command : {"health", "info", "list", "tables", "get", "describe", "show",
                              "completion", "export", "cache"}) {
    EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat("\n  ", command, " ")));
  }
}

TEST_F(ToolTest, HelpDescribesTablesAndWindows) {
  EXPECT_EQ(RunAlone("get --help"), 0);
  // Some versions of CLI11 wrap lines, others do not.
  const std::string words =
      absl::StrJoin(absl::StrSplit(out_.str(), absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  EXPECT_THAT(words, HasSubstr("--queries A:B Window within the full length, or within a "
                               "grid's tokens; N is 0:N"));
  EXPECT_THAT(words, HasSubstr("a table is @FILE.safetensors:TENSOR, "
                               "@FILE.npy, name:NAME or sha256:DIGEST"));
}

TEST_F(ToolTest, HelpAndVersionAreExitCode0) {
  EXPECT_EQ(RunAlone("--help"), 0);
  EXPECT_THAT(out_.str(), HasSubstr("health"));
  EXPECT_THAT(out_.str(), HasSubstr("python -m attnbias export"));
  EXPECT_EQ(RunAlone("--version"), 0);
  EXPECT_THAT(out_.str(), StartsWith("attnbias "));
}

// A server that describes a bias with 8 heads over 100 queries and keys.
class ShowTest : public ToolTest {
 protected:
  ShowTest() {
    v1::TensorSpec spec;
    spec.mutable_alibi()->set_num_heads(8);
    header_ = MakeAnswer(spec, {"diagonals"}, v1::FORM_TOEPLITZ, {8, 199}, -99);
    v1::PairExtent* pair = header_.mutable_resolved_spec()->mutable_pair();
    pair->set_query_length(100);
    pair->set_key_length(100);
    pair->set_query_offset(0);
    pair->mutable_heads()->set_end(8);
    pair->mutable_queries()->set_end(100);
    pair->mutable_keys()->set_end(100);
  }

  // Runs `show` for that bias, with additional arguments.
  int Show(const std::string& more) {
    server_.ThenDescribe([header = header_](v1::DescribeTensorResponse* response) {
      *response->mutable_header() = header;
      return grpc::Status::OK;
    });
    return Run("show alibi --query-length 100 --key-length 100 " + more);
  }

  v1::TensorHeader header_;
};

// The server's answer is indexed by key - query.
TEST_F(ShowTest, RequestsOnlyDrawnPositions) {
  server_.Then([](const FakeStream& stream) {
    const v1::PairExtent& pair = stream.request.spec().pair();
    const auto& queries = pair.query_positions().positions();
    const auto& keys = pair.key_positions().positions();
    std::string payload;
    for (const int64_t query : queries) {
      for (const int64_t key : keys) {
        const auto number = static_cast<float>(key - query);
        payload.append(reinterpret_cast<const char*>(&number), sizeof(number));
      }
    }
    return stream.SendAll(payload, MakeAnswer(stream.request.spec(), {"dense"}, v1::FORM_DENSE,
                                              {1, queries.size(), keys.size()}));
  });
  EXPECT_EQ(Show("--head 3"), 0) << err_.str();
  EXPECT_THAT(out_.str(), StartsWith("alibi, head 3 of 8, f32: queries down, keys across, "
                                     "39 x 77 of 100 x 100\n"
                                     " 0 =+++"));
  EXPECT_THAT(out_.str(), HasSubstr("\n   blank -97, @ 98\n"));
  const v1::TensorSpec spec = server_.requests().at(0).spec();
  EXPECT_EQ(spec.output().form(), v1::FORM_DENSE);
  EXPECT_EQ(spec.pair().heads().begin(), 3);
  EXPECT_EQ(spec.pair().heads().end(), 4);
  EXPECT_EQ(spec.pair().query_length(), 0);
  EXPECT_EQ(spec.pair().query_positions().positions_size(), 39);
  EXPECT_EQ(spec.pair().query_positions().positions(38), 97);
  EXPECT_EQ(spec.pair().key_positions().positions_size(), 77);
  EXPECT_EQ(spec.pair().key_positions().positions(76), 98);
}

TEST_F(ShowTest, RejectsAnswerOfAnotherShape) {
  server_.Then([](const FakeStream& stream) {
    const std::string payload(16, '\0');
    v1::TensorHeader header = MakeHeader(payload, "abc");
    *header.mutable_resolved_spec() = stream.request.spec();
    return stream.SendAll(payload, header);
  });
  EXPECT_EQ(Show(""), 1);
  EXPECT_EQ(err_.str(), "attnbias: DATA_LOSS: header: got a shape that contradicts its spec\n");
}

TEST_F(ShowTest, RejectsUnknownHeadAndPart) {
  EXPECT_EQ(Show("--head 8"), 2);
  EXPECT_EQ(err_.str(), "attnbias: --head: got 8, want an integer in [0, 8)\n");
  EXPECT_EQ(Show("--part cos"), 2);
  EXPECT_EQ(err_.str(), "attnbias: --part: got cos, want one of diagonals\n");
  header_.mutable_resolved_spec()->mutable_pair()->clear_heads();
  EXPECT_EQ(Show("--head 0"), 2);
  EXPECT_EQ(err_.str(),
            "attnbias: --head: got a value, want none: the numbers are the same for "
            "all heads\n");
  EXPECT_TRUE(server_.requests().empty());
}

// The terminal reports no size, as a serial line does.
TEST(ScreenOf, DefaultsIfTerminalReportsNoSize) {
  int terminal = -1;
  int other_end = -1;
  const winsize none = {};
  ASSERT_EQ(openpty(&other_end, &terminal, nullptr, nullptr, &none), 0);
  const Screen screen = ScreenOf(terminal);
  EXPECT_EQ(screen.columns, 80);
  EXPECT_EQ(screen.lines, 44);
  close(terminal);
  close(other_end);
}

}  // namespace
}  // namespace attnbias::tool_test
