// SPDX-License-Identifier: Apache-2.0
#include "core/table/checkpoint.h"

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/status_matchers.h"

namespace attnbias {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr char kBias[] =
    ".layer.0.SelfAttention.relative_attention_bias.weight";

// Zeros but for the first number.
F32Tensor Tensor(const std::string& name, std::vector<int64_t> shape,
                 float first = 0) {
  int64_t size = 1;
  for (const int64_t length : shape) size *= length;
  std::vector<float> values(size);
  values[0] = first;
  return {name, std::move(shape), std::move(values)};
}

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : folder_(FreshFolder()) {}

  void WriteConfig(const std::string& json) {
    WriteFile(folder_ / "config.json", json);
  }
  void WriteModel(const std::vector<F32Tensor>& tensors,
                  const std::string& file = "model.safetensors") {
    WriteFile(folder_ / file, SafetensorsBytes(tensors));
  }

  absl::StatusOr<TableSetPtr> Load() {
    TableSetBuilder builder(1 << 20);
    if (absl::Status status = AddCheckpoint("m", folder_, builder);
        !status.ok()) {
      return status;
    }
    return std::move(builder).Build();
  }

  const std::filesystem::path folder_;
};

void ExpectT5(const MountedTable* mounted, int64_t num_buckets,
              int64_t max_distance, bool bidirectional) {
  ASSERT_NE(mounted, nullptr);
  ASSERT_TRUE(mounted->spec.has_value());
  const auto& spec = std::get<T5Spec>(*mounted->spec);
  EXPECT_EQ(spec.num_heads, mounted->table.columns());
  EXPECT_EQ(spec.num_buckets, num_buckets);
  EXPECT_EQ(spec.max_distance, max_distance);
  EXPECT_EQ(spec.bidirectional, bidirectional);
  EXPECT_EQ(spec.table->sha256(), mounted->table.sha256());
}

TEST_F(Checkpoint, T5HasABiasOnEitherSide) {
  WriteConfig(R"({"model_type":"t5","num_heads":4,
                  "relative_attention_num_buckets":32,
                  "relative_attention_max_distance":256})");
  WriteModel({Tensor("shared.weight", {3, 2}),
              Tensor(std::string("encoder.block.0") + kBias, {32, 4}, 1),
              Tensor(std::string("decoder.block.0") + kBias, {32, 4}, 2)});
  const absl::StatusOr<TableSetPtr> set = Load();
  ASSERT_THAT(set, IsOk());
  ASSERT_EQ((*set)->tables().size(), 2);
  ExpectT5((*set)->Find("m/encoder"), 32, 256, true);
  ExpectT5((*set)->Find("m/decoder"), 32, 256, false);
  EXPECT_EQ((*set)->Find("m/decoder")->table.At(0), 2);
  EXPECT_EQ((*set)->Find("m/decoder")->source,
            std::string("model.safetensors:decoder.block.0") + kBias);
}

TEST_F(Checkpoint, ShardsAreFoundByTheIndexAndOnlyTheNeededAreOpened) {
  WriteConfig(R"({"model_type":"umt5"})");
  WriteFile(folder_ / "model.safetensors.index.json",
            std::string(R"({"weight_map":{"shared.weight":"absent.safetensors",
                "encoder.block.0)") +
                kBias + R"(":"a.safetensors",
                "encoder.block.11)" +
                kBias + R"(":"b.safetensors"}})");
  WriteModel({Tensor(std::string("encoder.block.0") + kBias, {32, 2})},
             "a.safetensors");
  WriteModel({Tensor(std::string("encoder.block.11") + kBias, {32, 2}, 5)},
             "b.safetensors");
  const absl::StatusOr<TableSetPtr> set = Load();
  ASSERT_THAT(set, IsOk());
  ASSERT_EQ((*set)->tables().size(), 2);
  ExpectT5((*set)->Find("m/encoder.layers.11"), 32, 128, true);
  EXPECT_EQ((*set)->Find("m/encoder.layers.11")->table.At(0), 5);

  WriteModel({Tensor("another", {1})}, "b.safetensors");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("b.safetensors: has no tensor")));
}

// Tensors as transformers 5.23 saves them (save_pretrained of a tiny model of
// each type), with what a task's head puts in front.
struct Saved {
  const char* name;
  const char* model_type;
  std::vector<F32Tensor> tensors;
  std::vector<std::string> tables;
};

class SavedCheckpoint : public testing::TestWithParam<Saved> {};

TEST_P(SavedCheckpoint, IsUnderstood) {
  const std::filesystem::path folder = FreshFolder();
  WriteFile(folder / "config.json",
            absl::StrCat("{\"model_type\":\"", GetParam().model_type, "\"}"));
  std::vector<F32Tensor> tensors = GetParam().tensors;
  tensors.push_back(Tensor("lm_head.weight", {2, 2}));
  WriteFile(folder / "model.safetensors", SafetensorsBytes(tensors));
  TableSetBuilder builder(1 << 20);
  ASSERT_THAT(AddCheckpoint("m", folder, builder), IsOk());
  const absl::StatusOr<TableSetPtr> set = std::move(builder).Build();
  ASSERT_THAT(set, IsOk());
  std::vector<std::string> names;
  for (const MountedTable& table : (*set)->tables())
    names.push_back(table.name);
  EXPECT_THAT(names, ElementsAreArray(GetParam().tables));
}

constexpr char kSwin[] = "swin.encoder.layers.1.blocks.0.attention.self.";
constexpr char kSwinV2[] =
    "swinv2.encoder.layers.1.blocks.3.attention.self."
    "continuous_position_bias_mlp.";

INSTANTIATE_TEST_SUITE_P(
    Types, SavedCheckpoint,
    testing::Values(
        Saved{"Mt5",
              "mt5",
              {Tensor(std::string("encoder.block.0") + kBias, {32, 2}),
               Tensor(std::string("decoder.block.0") + kBias, {32, 2})},
              {"m/decoder", "m/encoder"}},
        Saved{"LongT5Local",
              "longt5",
              {Tensor("encoder.block.0.layer.0.LocalSelfAttention."
                      "relative_attention_bias.weight",
                      {32, 2}),
               Tensor(std::string("decoder.block.0") + kBias, {32, 2})},
              {"m/decoder", "m/encoder"}},
        Saved{"LongT5Global",
              "longt5",
              {Tensor("encoder.block.0.layer.0.TransientGlobalSelfAttention."
                      "global_relative_attention_bias.weight",
                      {32, 2}),
               Tensor("encoder.block.0.layer.0.TransientGlobalSelfAttention."
                      "relative_attention_bias.weight",
                      {32, 2})},
              {"m/encoder", "m/encoder.global"}},
        Saved{"Bert",
              "bert",
              {Tensor("bert.embeddings.position_embeddings.weight", {10, 8})},
              {"m/positions"}},
        Saved{"BertWithoutHead",
              "bert",
              {Tensor("embeddings.position_embeddings.weight", {10, 8})},
              {"m/positions"}},
        Saved{
            "Roberta",
            "roberta",
            {Tensor("roberta.embeddings.position_embeddings.weight", {10, 8})},
            {"m/positions"}},
        Saved{"Gpt2",
              "gpt2",
              {Tensor("transformer.wpe.weight", {10, 8})},
              {"m/positions"}},
        Saved{"Opt",
              "opt",
              {Tensor("model.decoder.embed_positions.weight", {12, 8})},
              {"m/positions"}},
        Saved{"Bart",
              "bart",
              {Tensor("model.encoder.embed_positions.weight", {12, 8}),
               Tensor("model.decoder.embed_positions.weight", {12, 8})},
              {"m/decoder.positions", "m/encoder.positions"}},
        Saved{"Mpnet",
              "mpnet",
              {Tensor("mpnet.embeddings.position_embeddings.weight", {10, 8}),
               Tensor("mpnet.encoder.relative_attention_bias.weight", {32, 2})},
              {"m/encoder", "m/positions"}},
        Saved{"Swin",
              "swin",
              {Tensor(std::string(kSwin) + "relative_position_bias_table",
                      {9, 2})},
              {"m/encoder.layers.1.blocks.0"}},
        Saved{"SwinV2",
              "swinv2",
              {Tensor(std::string(kSwinV2) + "0.bias", {512}),
               Tensor(std::string(kSwinV2) + "0.weight", {512, 2}),
               Tensor(std::string(kSwinV2) + "2.weight", {2, 512}),
               Tensor("swinv2.encoder.layers.1.blocks.3.attention.self."
                      "logit_scale",
                      {2, 1, 1})},
              {"m/encoder.layers.1.blocks.3.mlp.0.bias",
               "m/encoder.layers.1.blocks.3.mlp.0.weight",
               "m/encoder.layers.1.blocks.3.mlp.2.weight"}},
        Saved{"Beit",
              "beit",
              {Tensor("beit.embeddings.position_embeddings", {1, 5, 8}),
               Tensor("beit.encoder.layer.1.attention.attention."
                      "relative_position_bias.relative_position_bias_table",
                      {12, 2})},
              {"m/encoder.layers.1", "m/positions"}},
        Saved{"BeitShared",
              "beit",
              {Tensor("beit.encoder.relative_position_bias."
                      "relative_position_bias_table",
                      {12, 2})},
              {"m/encoder"}},
        Saved{"DebertaV2",
              "deberta-v2",
              {Tensor("deberta.embeddings.position_embeddings.weight", {10, 8}),
               Tensor("deberta.encoder.rel_embeddings.weight", {8, 8})},
              {"m/encoder", "m/positions"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(Checkpoint, WhatIsWrongIsNamed) {
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("config.json: no such file")));
  WriteConfig("[]");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("config.json: not a JSON object")));
  WriteConfig("{}");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("model_type: got '', want one of t5, "
                                         "mt5, umt5, longt5, bert")));
  WriteConfig(R"({"model_type":"llama"})");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("model_type: got 'llama'")));
  WriteConfig(R"({"model_type":"t5"})");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("model.safetensors.index.json")));
  WriteFile(folder_ / "model.safetensors.index.json",
            R"({"weight_map":{"x":"../x.safetensors"}})");
  EXPECT_THAT(
      Load(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("x: got \"../x.safetensors\", want a file's")));
  WriteModel({Tensor("shared.weight", {1})});
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("none of the tensors that a t5"),
                                     HasSubstr("encoder.block.0.layer.0"))));
  WriteModel({Tensor(std::string("encoder.block.0") + kBias, {32, 2})});
  ASSERT_THAT(Load(), IsOk());
  WriteConfig(R"({"model_type":"t5","relative_attention_num_buckets":64})");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("got shape [32, 2], want [64 buckets, "
                                         "2 heads]")));
  WriteConfig(R"({"model_type":"t5","relative_attention_max_distance":"far"})");
  EXPECT_THAT(
      Load(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("config.json: relative_attention_max_distance: got "
                         "\"far\", want an integer")));
}

}  // namespace
}  // namespace attnbias
