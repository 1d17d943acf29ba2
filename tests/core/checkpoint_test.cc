// SPDX-License-Identifier: Apache-2.0
#include "core/mount/checkpoint.h"

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/encoding/spec/deberta.h"
#include "core/encoding/spec/learned_absolute.h"
#include "core/encoding/spec/relative_table.h"
#include "core/encoding/spec/swin.h"
#include "core/encoding/spec/swin_v2.h"
#include "core/encoding/spec/t5.h"
#include "gmock/gmock.h"
#include "tests/testing/safetensors_writer.h"
#include "tests/testing/status_matchers.h"

namespace attnbias {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr char kBias[] =
    ".layer.0.SelfAttention.relative_attention_bias.weight";

// Zeros except for the first number.
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
  const auto& spec = *mounted->spec->As<T5Spec>();
  EXPECT_EQ(spec.num_heads, mounted->table.columns());
  EXPECT_EQ(spec.num_buckets, num_buckets);
  EXPECT_EQ(spec.max_distance, max_distance);
  EXPECT_EQ(spec.bidirectional, bidirectional);
  EXPECT_EQ(spec.bucket_rule, BucketRule::kFloat32Log);
  EXPECT_EQ(spec.table->sha256(), mounted->table.sha256());
}

TEST_F(Checkpoint, FilesThatAreNoJsonOfReasonAreRefused) {
  WriteModel({Tensor(std::string("encoder.block.0") + kBias, {32, 2})});
  const std::string deep = std::string(200000, '[');
  WriteConfig("{\"model_type\": " + deep);
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("config.json: ")));
  WriteConfig("{\"model_type\": \"t5\", \"relative_attention_num_buckets\": " +
              deep + std::string(200000, ']') + "}");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("nested deeper than 100 levels")));
  WriteConfig("{\"model_type\": \"" + std::string(100000, 'x') + "\"}");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("model_type")));
  std::filesystem::remove(folder_ / "config.json");
  std::filesystem::create_directory(folder_ / "config.json");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("got a folder, want a regular file")));
  std::filesystem::remove(folder_ / "config.json");
  ASSERT_EQ(mkfifo((folder_ / "config.json").c_str(), 0600), 0);
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("got a FIFO, want a regular file")));
}

TEST_F(Checkpoint, ModelsThatCannotBeReachedAreErrors) {
  WriteConfig(R"({"model_type": "t5"})");
  std::filesystem::create_symlink("model.safetensors",
                                  folder_ / "model.safetensors");
  EXPECT_FALSE(Load().ok());
  std::filesystem::remove(folder_ / "model.safetensors");
  std::filesystem::create_directory(folder_ / "model.safetensors.index.json");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("got a folder, want a regular file")));
}

// Who fills the folder does not choose what else the server reads.
TEST_F(Checkpoint, NothingLeadsOutOfTheFolder) {
  const std::filesystem::path model = folder_ / "model";
  const std::string tensor = std::string("encoder.block.0") + kBias;
  std::filesystem::create_directory(model);
  WriteModel({Tensor(tensor, {32, 2})}, "outside.safetensors");
  WriteConfig(R"({"model_type": "t5"})");
  const auto load = [&model] {
    TableSetBuilder builder(1 << 20);
    return AddCheckpoint("m", model, builder);
  };
  const auto leads_out = [](const char* file) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr(absl::StrCat(file, ": got a link to ")),
                          HasSubstr("want a file inside ")));
  };

  std::filesystem::create_symlink("../config.json", model / "config.json");
  EXPECT_THAT(load(), leads_out("config.json"));
  std::filesystem::remove(model / "config.json");
  std::filesystem::copy(folder_ / "config.json", model / "config.json");

  std::filesystem::create_symlink("../outside.safetensors",
                                  model / "model.safetensors");
  EXPECT_THAT(load(), leads_out("model.safetensors"));
  std::filesystem::rename(model / "model.safetensors",
                          model / "shard.safetensors");
  const auto index = [&](const std::string& shard) {
    WriteFile(
        model / "model.safetensors.index.json",
        absl::StrCat("{\"weight_map\":{\"", tensor, "\":\"", shard, "\"}}"));
  };
  index("shard.safetensors");
  EXPECT_THAT(load(), leads_out("shard.safetensors"));

  const std::string path = (folder_ / "outside.safetensors").string();
  for (const std::string& shard :
       {std::string("../outside.safetensors"), path,
        std::string("./shard.safetensors"), std::string()}) {
    index(shard);
    EXPECT_THAT(
        load(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr(absl::StrCat("weight_map: ", tensor, ": got \"",
                                        shard, "\", want a file's name"))));
  }
  index("..");
  EXPECT_THAT(load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("got a folder, want")));
}

TEST_F(Checkpoint, ASnapshotLinksToItsBlobs) {
  const std::filesystem::path hub = folder_ / "models--google--t5";
  const std::filesystem::path snapshot = hub / "snapshots" / "0a1b";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directory(hub / "blobs");
  WriteFile(hub / "blobs" / "12", R"({"model_type": "t5"})");
  WriteFile(hub / "blobs" / "34",
            SafetensorsBytes(
                {Tensor(std::string("encoder.block.0") + kBias, {32, 2})}));
  std::filesystem::create_symlink("../../blobs/12", snapshot / "config.json");
  std::filesystem::create_symlink("../../blobs/34",
                                  snapshot / "model.safetensors");
  TableSetBuilder builder(1 << 20);
  EXPECT_THAT(AddCheckpoint("m", snapshot, builder), IsOk());
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
  const char* fields = "";  // further ones of config.json
};

class SavedCheckpoint : public testing::TestWithParam<Saved> {};

TEST_P(SavedCheckpoint, IsUnderstood) {
  const std::filesystem::path folder = FreshFolder();
  WriteFile(folder / "config.json",
            absl::StrCat("{\"model_type\":\"", GetParam().model_type, "\"",
                         GetParam().fields, "}"));
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
              {"m/encoder.layers.1.blocks.0"},
              R"(,"window_size":2)"},
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
              {"m/encoder.layers.1", "m/positions"},
              R"(,"image_size":32)"},
        Saved{"BeitShared",
              "beit",
              {Tensor("beit.encoder.relative_position_bias."
                      "relative_position_bias_table",
                      {12, 2})},
              {"m/encoder"},
              R"(,"image_size":32)"},
        Saved{"Vit",
              "vit",
              {Tensor("vit.embeddings.position_embeddings", {1, 5, 8})},
              {"m/positions"}},
        Saved{"Deit",
              "deit",
              {Tensor("deit.embeddings.position_embeddings", {1, 6, 8})},
              {"m/positions"}},
        Saved{
            "Detr",
            "detr",
            {Tensor("model.position_embedding.column_embeddings.weight",
                    {50, 4}),
             Tensor("model.position_embedding.row_embeddings.weight", {50, 4}),
             Tensor("model.query_position_embeddings.weight", {3, 8})},
            {"m/columns", "m/queries", "m/rows"}},
        Saved{"DebertaV2",
              "deberta-v2",
              {Tensor("deberta.embeddings.position_embeddings.weight", {10, 8}),
               Tensor("deberta.encoder.rel_embeddings.weight", {8, 8})},
              {"m/encoder", "m/positions"},
              R"(,"position_buckets":4)"}),
    [](const auto& info) { return std::string(info.param.name); });

// Mounts one tensor of a model with further fields in its config.json, and
// gives the spec of `table`.
class Use : public Checkpoint {
 protected:
  std::optional<EncodingSpec> SpecOf(const std::string& table,
                                     const std::string& model_type,
                                     const std::string& fields,
                                     const std::vector<F32Tensor>& tensors) {
    WriteConfig(
        absl::StrCat("{\"model_type\":\"", model_type, "\"", fields, "}"));
    WriteModel(tensors);
    const absl::StatusOr<TableSetPtr> set = Load();
    EXPECT_THAT(set, IsOk());
    if (!set.ok()) return std::nullopt;
    const MountedTable* mounted = (*set)->Find("m/" + table);
    EXPECT_NE(mounted, nullptr);
    return mounted == nullptr ? std::nullopt : mounted->spec;
  }

  template <typename Spec>
  Spec Of(const std::string& table, const std::string& model_type,
          const std::string& fields, const std::vector<F32Tensor>& tensors) {
    const auto spec = SpecOf(table, model_type, fields, tensors);
    EXPECT_TRUE(spec.has_value() && spec->As<Spec>() != nullptr);
    return spec.has_value() ? *spec->As<Spec>() : Spec();
  }

  LearnedAbsoluteSpec Positions(const std::string& model_type,
                                const std::string& tensor,
                                const std::string& fields = "") {
    return Of<LearnedAbsoluteSpec>("positions", model_type, fields,
                                   {Tensor(tensor, {12, 8}, 3)});
  }
};

TEST_F(Use, PositionsBeginAtTheModelsRow) {
  const std::string bert = "embeddings.position_embeddings.weight";
  EXPECT_EQ(Positions("bert", bert).offset, 0);
  EXPECT_EQ(Positions("bert", bert).table->At(0), 3);
  EXPECT_EQ(Positions("gpt2", "wpe.weight").offset, 0);
  EXPECT_EQ(Positions("opt", "decoder.embed_positions.weight").offset, 2);
  EXPECT_EQ(Positions("roberta", bert).offset, 2);
  EXPECT_EQ(Positions("roberta", bert, R"(,"pad_token_id":4)").offset, 5);
  EXPECT_EQ(Positions("mpnet", bert, R"(,"pad_token_id":4)").offset, 2);
  EXPECT_EQ(Positions("deberta-v2", bert).offset, 0);
  EXPECT_EQ(Positions("roberta", bert).padding_idx, std::nullopt);
  const std::vector<F32Tensor> bart = {
      Tensor("model.encoder.embed_positions.weight", {12, 8}),
      Tensor("model.decoder.embed_positions.weight", {12, 8})};
  for (const char* side : {"encoder.positions", "decoder.positions"}) {
    EXPECT_EQ(Of<LearnedAbsoluteSpec>(side, "bart", "", bart).offset, 2);
  }
}

TEST_F(Use, DistancesAreQueryMinusKey) {
  for (const char* model_type : {"bert", "roberta"}) {
    const auto spec = Of<ShawSpec>(
        "encoder.layers.1", model_type,
        R"(,"position_embedding_type":"relative_key")",
        {Tensor("encoder.layer.1.attention.self.distance_embedding.weight",
                {17, 4})});
    EXPECT_EQ(spec.left, 8);
    EXPECT_EQ(spec.right, 8);
    EXPECT_EQ(spec.beyond, BeyondReach::kRefuse);
    EXPECT_EQ(spec.sign, RelativeSign::kQueryMinusKey);
  }
}

TEST_F(Use, PositionsThatAreNotAddedHaveNoSpec) {
  for (const char* model_type : {"bert", "roberta"}) {
    EXPECT_EQ(SpecOf("positions", model_type,
                     R"(,"position_embedding_type":"relative_key")",
                     {Tensor("embeddings.position_embeddings.weight", {9, 4})}),
              std::nullopt);
  }
  EXPECT_EQ(SpecOf("positions", "swinv2", "",
                   {Tensor("embeddings.position_embeddings", {1, 5, 8})}),
            std::nullopt);
}

TEST_F(Use, PositionsOfPatchesLoseTheBatchsAxis) {
  const std::vector<F32Tensor> tensors = {
      Tensor("embeddings.position_embeddings", {1, 5, 8})};
  for (const char* model_type : {"vit", "deit", "swin"}) {
    const auto spec =
        Of<LearnedAbsoluteSpec>("positions", model_type, "", tensors);
    ASSERT_TRUE(spec.table.has_value());
    EXPECT_THAT(spec.table->shape(), ElementsAre(5, 8));
    EXPECT_EQ(spec.offset, 0);
  }
}

TEST_F(Use, MpnetBuckets) {
  const auto tensors = [](int64_t rows) {
    return std::vector<F32Tensor>{
        Tensor("encoder.relative_attention_bias.weight", {rows, 2})};
  };
  const std::string fields = R"(,"relative_attention_max_distance":64)";
  EXPECT_EQ(Of<T5Spec>("encoder", "mpnet", fields, tensors(32)).max_distance,
            128);
  EXPECT_EQ(SpecOf("encoder", "mpnet", "", tensors(64)), std::nullopt);
}

TEST_F(Use, SwinsWindowIsTheModelsAndHeadsAreTheStages) {
  const std::string blocks = "encoder.layers.1.blocks.3";
  const auto spec = Of<SwinSpec>(
      blocks, "swin", R"(,"window_size":3,"num_heads":[3,6])",
      {Tensor(blocks + ".attention.self.relative_position_bias_table",
              {25, 6})});
  EXPECT_EQ(spec.window_height, 3);
  EXPECT_EQ(spec.window_width, 3);
  EXPECT_EQ(spec.num_heads, 6);
}

class SwinV2Use : public Use {
 protected:
  SwinV2Spec OfStage(int stage, const std::string& fields) {
    const std::string blocks =
        absl::StrCat("encoder.layers.", stage, ".blocks.0");
    const std::string mlp =
        blocks + ".attention.self.continuous_position_bias_mlp.";
    const std::vector<F32Tensor> tensors = {
        Tensor(mlp + "0.weight", {4, 2}, 1), Tensor(mlp + "0.bias", {4}, 2),
        Tensor(mlp + "2.weight", {6, 4}, 3)};
    // All three tables have the one spec.
    auto spec =
        Of<SwinV2Spec>(blocks + ".mlp.0.bias", "swinv2", fields, tensors);
    for (const char* part : {".mlp.0.weight", ".mlp.2.weight"}) {
      const auto same =
          Of<SwinV2Spec>(blocks + part, "swinv2", fields, tensors);
      EXPECT_EQ(same.window_height, spec.window_height);
    }
    return spec;
  }
};

TEST_F(SwinV2Use, TablesAreTogether) {
  const SwinV2Spec spec = OfStage(0, "");
  EXPECT_EQ(spec.window_height, 7);
  EXPECT_EQ(spec.window_width, 7);
  EXPECT_EQ(spec.num_heads, 6);
  EXPECT_EQ(spec.pretrained_window_height, std::nullopt);
  EXPECT_EQ(spec.hidden_weight->At(0), 1);
  EXPECT_EQ(spec.hidden_bias->At(0), 2);
  EXPECT_EQ(spec.output_weight->At(0), 3);
}

TEST_F(SwinV2Use, HalfANetworkHasNoSpec) {
  EXPECT_EQ(SpecOf("encoder.layers.0.blocks.0.mlp.0.bias", "swinv2", "",
                   {Tensor("encoder.layers.0.blocks.0.attention.self."
                           "continuous_position_bias_mlp.0.bias",
                           {4})}),
            std::nullopt);
}

TEST_F(SwinV2Use, AWindowIsNoLargerThanItsStage) {
  const std::string fields =
      R"(,"image_size":[256,192],"patch_size":4,"window_size":16)";
  EXPECT_EQ(OfStage(0, fields).window_height, 16);
  EXPECT_EQ(OfStage(2, fields).window_height, 16);
  EXPECT_EQ(OfStage(3, fields).window_height, 8);
  EXPECT_EQ(OfStage(3, fields).window_width, 8);
}

TEST_F(SwinV2Use, APretrainedWindowIsTheStages) {
  const std::string fields = R"(,"pretrained_window_sizes":[12,0,6])";
  EXPECT_EQ(OfStage(0, fields).pretrained_window_width, 12);
  EXPECT_EQ(OfStage(1, fields).pretrained_window_width, std::nullopt);
  EXPECT_EQ(OfStage(2, fields).pretrained_window_height, 6);
}

TEST_F(Use, BeitsWindowIsTheImagesPatches) {
  const auto tensors = [](int64_t rows) {
    return std::vector<F32Tensor>{
        Tensor("embeddings.position_embeddings", {1, 10, 8}),
        Tensor("encoder.relative_position_bias.relative_position_bias_table",
               {rows, 2})};
  };
  const auto spec =
      Of<BeitSpec>("encoder", "beit",
                   R"(,"image_size":[48,54],"patch_size":16)", tensors(28));
  EXPECT_EQ(spec.window_height, 3);
  EXPECT_EQ(spec.window_width, 3);
  EXPECT_EQ(spec.num_heads, 2);
  // transformers resamples what is not a square.
  const std::string oblong = R"(,"image_size":[32,64],"patch_size":16)";
  EXPECT_EQ(SpecOf("encoder", "beit", oblong, tensors(24)), std::nullopt);
  EXPECT_EQ(SpecOf("positions", "beit", oblong, tensors(24)), std::nullopt);
}

TEST_F(Use, DebertasIndicesAreThoseOfTheTablesRows) {
  const std::vector<F32Tensor> tensors = {
      Tensor("encoder.rel_embeddings.weight", {64, 8})};
  const auto buckets = Of<DebertaSpec>(
      "encoder", "deberta-v2",
      R"(,"position_buckets":32,"max_relative_positions":-1)", tensors);
  EXPECT_EQ(buckets.bucket_size, 32);
  EXPECT_EQ(buckets.max_position, 512);
  EXPECT_EQ(buckets.term, DebertaTerm::kContentToPosition);
  EXPECT_EQ(buckets.edge, DebertaEdge::kHf);
  EXPECT_EQ(buckets.bucket_rule, BucketRule::kFloat32Log);
  const auto distances = Of<DebertaSpec>(
      "encoder", "deberta-v2", R"(,"max_position_embeddings":32)", tensors);
  EXPECT_EQ(distances.bucket_size, 0);
  EXPECT_EQ(distances.max_position, 32);
}

TEST_F(Use, AConfigurationThatTensorsContradictIsNamed) {
  const auto expect = [this](const std::string& config,
                             const std::vector<F32Tensor>& tensors,
                             const std::string& says) {
    WriteConfig(config);
    WriteModel(tensors);
    EXPECT_THAT(Load(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(says)));
  };
  const std::vector<F32Tensor> beit = {Tensor(
      "encoder.relative_position_bias.relative_position_bias_table", {12, 2})};
  expect(R"({"model_type":"beit"})", beit,
         "got shape [12, 2], want [732 displacements");
  expect(R"({"model_type":"beit","image_size":[32,"wide"]})", beit,
         "config.json: image_size: got [32,\"wide\"], want a positive integer, "
         "or a list of two");
  expect(R"({"model_type":"beit","patch_size":0})", beit,
         "config.json: patch_size: got 0, want a positive integer");
  expect(R"({"model_type":"deberta-v2","position_buckets":32})",
         {Tensor("encoder.rel_embeddings.weight", {8, 8})},
         "config.json: position_buckets: got 32, want 4, half the rows of");
  const std::string mlp =
      "encoder.layers.2.blocks.0.attention.self.continuous_position_bias_mlp.";
  expect(R"({"model_type":"swinv2","pretrained_window_sizes":[8,8]})",
         {Tensor(mlp + "0.weight", {4, 2}), Tensor(mlp + "0.bias", {4}),
          Tensor(mlp + "2.weight", {6, 4})},
         "pretrained_window_sizes: got [8,8], want a list with an integer at "
         "index 2");
  expect(R"({"model_type":"bert","position_embedding_type":7})",
         {Tensor("embeddings.position_embeddings.weight", {9, 4})},
         "config.json: position_embedding_type: got 7, want a string");
}

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
  EXPECT_THAT(
      Load(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr(folder_.string() +
                         ": config.json: model_type: got 'llama', want one")));
  WriteConfig(R"({"model_type":["t5"]})");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("model_type: got [\"t5\"], want a")));
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
  WriteConfig(
      R"({"model_type":"t5",
          "relative_attention_max_distance":18446744073709551615})");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("got 18446744073709551615, want an "
                                         "integer in [-2^31, 2^31]")));
}

}  // namespace
}  // namespace attnbias
