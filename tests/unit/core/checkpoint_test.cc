// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/mount/checkpoint_rules.h"
#include "core/mount/registry.h"
#include "gmock/gmock.h"
#include "tests/unit/support/fresh_folder.h"
#include "tests/unit/support/safetensors_writer.h"
#include "tests/unit/support/status_matchers.h"

namespace attnbias::checkpoint_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kBias = ".layer.0.SelfAttention.relative_attention_bias.weight";

// Returns a tensor of zeros except for the first element.
F32Tensor Tensor(const std::string& name, std::vector<int64_t> shape, float first = 0) {
  int64_t size = 1;
  for (const int64_t length : shape) size *= length;
  std::vector<float> values(size);
  values[0] = first;
  return {name, std::move(shape), std::move(values)};
}

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : folder_(FreshFolder()) {}

  void WriteConfig(const std::string& json) { WriteFile(folder_ / "config.json", json); }
  void WriteModel(const std::vector<F32Tensor>& tensors,
                  const std::string& file = "model.safetensors") {
    WriteFile(folder_ / file, SafetensorsBytes(tensors));
  }

  absl::StatusOr<TableSetPtr> Load() {
    TableSetBuilder builder(1 << 20);
    if (absl::Status status = AddCheckpoint("m", folder_, builder); !status.ok()) {
      return status;
    }
    return std::move(builder).Build();
  }

  void ExpectInvalid(const std::string& config, const std::string& says) {
    WriteConfig(config);
    EXPECT_THAT(Load(), IsInvalidWith(says)) << config.substr(0, 100);
  }

  const std::filesystem::path folder_;
};

void ExpectT5(const MountedTable* mounted, int64_t num_buckets, int64_t max_distance,
              bool bidirectional) {
  ASSERT_NE(mounted, nullptr);
  ASSERT_TRUE(mounted->spec.has_value());
  const v1::T5& spec = mounted->spec->t5();
  EXPECT_EQ(spec.num_heads(), mounted->table.columns());
  EXPECT_EQ(spec.num_buckets(), num_buckets);
  EXPECT_EQ(spec.max_distance(), max_distance);
  EXPECT_EQ(spec.bidirectional(), bidirectional);
  EXPECT_EQ(spec.bucket_rule(), v1::BUCKET_RULE_FLOAT32_LOG);
  EXPECT_EQ(spec.table().sha256(), mounted->table.sha256());
}

TEST_F(Checkpoint, RejectsUnreasonableJson) {
  WriteModel({Tensor("encoder.block.0" + kBias, {32, 2})});
  const std::string deep = std::string(200000, '[');
  ExpectInvalid("{\"model_type\": " + deep, "config.json: ");
  ExpectInvalid("{\"model_type\": \"t5\", \"num_heads\": " + deep + std::string(200000, ']') + "}",
                "nested deeper than 100 levels");
  // Work quadratic in the number of digits would take hours.
  const std::string digits(4 << 20, '1');
  for (const std::string& number :
       {digits, "-" + digits, "0." + digits + "e", "1e" + digits + "."}) {
    ExpectInvalid("{\"model_type\": \"t5\", \"x\": " + number + "}", "config.json: not JSON");
  }
  ExpectInvalid("{\"model_type\": \"" + std::string(100000, 'x') + "\"}", "model_type");
  // Takes minutes if the time is quadratic in the number of members.
  std::string many = "{\"model_type\": \"none\"";
  for (int i = 0; i < 400'000; ++i) absl::StrAppend(&many, ",\"", i, "\":{}");
  ExpectInvalid(many + "}", "model_type");
}

TEST_F(Checkpoint, EveryMountedModelTypeHasRules) {
  EXPECT_GT(MountedModelTypes().size(), 50);
  for (const std::string& name : MountedModelTypes()) {
    ModelConfig config(nlohmann::json{{"model_type", name}});
    const absl::StatusOr<std::vector<Rule>> rules = RulesFor(config);
    ASSERT_THAT(rules, IsOk()) << name;
    EXPECT_FALSE(rules->empty()) << name;
    for (const Rule& rule : *rules) {
      const std::vector<int64_t> shape = ShapeOf(rule, config, {0, 0});
      EXPECT_THAT(config.status(), IsOk()) << name << ": " << rule.tensor;
      EXPECT_FALSE(shape.empty());
    }
  }
}

TEST_F(Checkpoint, AcceptsNonFiniteNumbersInUnusedFields) {
  WriteModel({Tensor("encoder.block.0" + kBias, {32, 8})});
  for (const char* value : {"NaN", "[0.5, Infinity]", "-Infinity", "1e400"}) {
    WriteConfig(absl::StrCat("{\"model_type\": \"t5\", \"x\": ", value, "}"));
    EXPECT_THAT(Load(), IsOk()) << value;
    ExpectInvalid(absl::StrCat("{\"model_type\": \"t5\", \"num_heads\": ", value, "}"),
                  "num_heads: got ");
  }
  for (const char* text :
       {"\xEF\xBB\xBF{\"model_type\": \"t5\"}", "{\"model_type\": \"t5\", NaN: 1}",
        "{\"model_type\": \"t5\", \"x\": NaN1}", "{\"model_type\": \"t5\", \"x\": 01e400}"}) {
    ExpectInvalid(text, "config.json: not JSON");
  }
}

TEST_F(Checkpoint, NullFieldFallsBackToItsAlias) {
  WriteModel({Tensor("encoder.block.0" + kBias, {32, 2})});
  WriteConfig(R"({"model_type": "t5", "num_attention_heads": null, "num_heads": 2})");
  EXPECT_THAT(Load(), IsOk());
  ExpectInvalid(R"({"model_type": "t5", "num_heads": null})", "num_heads: got null");
}

TEST_F(Checkpoint, FolderWithoutModelIsNotFound) {
  WriteConfig(R"({"model_type": "t5"})");
  WriteFile(folder_ / "pytorch_model.bin", "");
  EXPECT_THAT(Load(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("got no weights, want model.safetensors, or model.safetensors.")));
}

TEST_F(Checkpoint, UnreadableModelFilesAreErrors) {
  WriteConfig(R"({"model_type": "t5"})");
  std::filesystem::create_symlink("model.safetensors", folder_ / "model.safetensors");
  EXPECT_FALSE(Load().ok());
  std::filesystem::remove(folder_ / "model.safetensors");
  std::filesystem::create_directory(folder_ / "model.safetensors.index.json");
  EXPECT_THAT(Load(), IsInvalidWith("got a folder, want a regular file"));
}

// The folder's contents must not make the server read other files.
TEST_F(Checkpoint, DoesNotFollowPathsOutOfFolder) {
  const std::filesystem::path model = folder_ / "model";
  const std::string tensor = "encoder.block.0" + kBias;
  std::filesystem::create_directory(model);
  WriteModel({Tensor(tensor, {32, 2})}, "outside.safetensors");
  WriteConfig(R"({"model_type": "t5"})");
  const auto load = [&model] {
    TableSetBuilder builder(1 << 20);
    return AddCheckpoint("m", model, builder);
  };
  const auto leads_out = [](const char* file) {
    return StatusIs(
        absl::StatusCode::kInvalidArgument,
        AllOf(HasSubstr(absl::StrCat(file, ": got a link to ")), HasSubstr("want a file inside ")));
  };

  std::filesystem::create_symlink("../config.json", model / "config.json");
  EXPECT_THAT(load(), leads_out("config.json"));
  std::filesystem::remove(model / "config.json");
  std::filesystem::copy(folder_ / "config.json", model / "config.json");

  std::filesystem::create_symlink("../outside.safetensors", model / "model.safetensors");
  EXPECT_THAT(load(), leads_out("model.safetensors"));
  std::filesystem::rename(model / "model.safetensors", model / "shard.safetensors");
  const auto index = [&](const std::string& shard) {
    WriteFile(model / "model.safetensors.index.json",
              absl::StrCat("{\"weight_map\":{\"", tensor, "\":\"", shard, "\"}}"));
  };
  index("shard.safetensors");
  EXPECT_THAT(load(), leads_out("shard.safetensors"));

  const std::string path = (folder_ / "outside.safetensors").string();
  for (const std::string& shard : {std::string("../outside.safetensors"), path,
                                   std::string("./shard.safetensors"), std::string()}) {
    index(shard);
    EXPECT_THAT(load(), IsInvalidWith(absl::StrCat("weight_map: ", tensor, ": got \"", shard,
                                                   "\", want a file name")));
  }
  index("..");
  EXPECT_THAT(load(), IsInvalidWith("got a folder, want"));
}

TEST_F(Checkpoint, T5HasEncoderAndDecoderBias) {
  WriteConfig(R"({"model_type":"t5","num_heads":4,
                  "relative_attention_num_buckets":32,
                  "relative_attention_max_distance":256})");
  WriteModel({Tensor("shared.weight", {3, 2}), Tensor("encoder.block.0" + kBias, {32, 4}, 1),
              Tensor("decoder.block.0" + kBias, {32, 4}, 2)});
  const absl::StatusOr<TableSetPtr> set = Load();
  ASSERT_THAT(set, IsOk());
  ASSERT_EQ((*set)->tables().size(), 2);
  ExpectT5((*set)->Find("m/encoder"), 32, 256, true);
  ExpectT5((*set)->Find("m/decoder"), 32, 256, false);
  EXPECT_EQ((*set)->Find("m/decoder")->table.At(0), 2);
  EXPECT_EQ((*set)->Find("m/decoder")->source,
            std::string("model.safetensors:decoder.block.0") + kBias);
}

TEST_F(Checkpoint, OpensOnlyNeededShardsOfIndex) {
  WriteConfig(R"({"model_type":"umt5","num_heads":2})");
  WriteFile(folder_ / "model.safetensors.index.json",
            std::string(R"({"weight_map":{"shared.weight":"absent.safetensors",
                "encoder.block.0)") +
                kBias + R"(":"a.safetensors",
                "encoder.block.11)" +
                kBias + R"(":"b.safetensors"}})");
  WriteModel({Tensor("encoder.block.0" + kBias, {32, 2})}, "a.safetensors");
  WriteModel({Tensor("encoder.block.11" + kBias, {32, 2}, 5)}, "b.safetensors");
  const absl::StatusOr<TableSetPtr> set = Load();
  ASSERT_THAT(set, IsOk());
  ASSERT_EQ((*set)->tables().size(), 2);
  ExpectT5((*set)->Find("m/encoder.layers.11"), 32, 128, true);
  EXPECT_EQ((*set)->Find("m/encoder.layers.11")->table.At(0), 5);

  WriteModel({Tensor("another", {1})}, "b.safetensors");
  EXPECT_THAT(Load(), IsInvalidWith("b.safetensors: has no tensor"));
}

// Tensors as transformers 5.23 saves them (save_pretrained on a tiny model of each type), with the
// prefix that a model with a task head adds.
struct Saved {
  std::string name;
  std::string model_type;
  // The fields of config.json that state the tensors' dimensions.
  nlohmann::json fields;
  std::vector<F32Tensor> tensors;
  std::vector<std::string> tables;
};

class SavedCheckpoint : public Checkpoint, public testing::WithParamInterface<Saved> {
 protected:
  absl::StatusOr<TableSetPtr> Load(nlohmann::json fields, std::vector<F32Tensor> tensors) {
    fields["model_type"] = GetParam().model_type;
    WriteConfig(fields.dump());
    tensors.push_back(Tensor("lm_head.weight", {2, 2}));
    WriteModel(tensors);
    return Checkpoint::Load();
  }

  const nlohmann::json fields_ = GetParam().fields;
};

TEST_P(SavedCheckpoint, MountsItsTables) {
  const absl::StatusOr<TableSetPtr> set = Load(fields_, GetParam().tensors);
  ASSERT_THAT(set, IsOk());
  std::vector<std::string> names;
  for (const MountedTable& table : (*set)->tables()) names.push_back(table.name);
  EXPECT_THAT(names, ElementsAreArray(GetParam().tables));
}

// Returns `value` times `factor`; if it is a list, multiplies each of its integers.
nlohmann::json Times(int factor, const nlohmann::json& value) {
  if (!value.is_array()) return factor * value.get<int>();
  nlohmann::json product = nlohmann::json::array();
  for (const auto& each : value) product.push_back(factor * each.get<int>());
  return product;
}

TEST_P(SavedCheckpoint, FieldsContradictingTensorsAreRejected) {
  for (const auto& [field, value] : fields_.items()) {
    for (const nlohmann::json& wrong : {Times(2, value), Times(-1, value), nlohmann::json(),
                                        nlohmann::json("10"), nlohmann::json(1.5)}) {
      nlohmann::json fields = fields_;
      fields[field] = wrong;
      EXPECT_THAT(Load(fields, GetParam().tensors),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("model.safetensors:"), HasSubstr("config.json: "),
                                 HasSubstr(field), HasSubstr(wrong.dump()), HasSubstr("want "))));
    }
    nlohmann::json fields = fields_;
    fields.erase(field);
    EXPECT_THAT(Load(fields, GetParam().tensors),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(field + " = "), HasSubstr(" by default"))));
  }
}

TEST_P(SavedCheckpoint, WrongTensorShapesAreRejected) {
  const auto expect_refused = [this](const F32Tensor& tensor) {
    EXPECT_THAT(Load(fields_, {tensor}),
                IsInvalidWith(absl::StrCat("model.safetensors:", tensor.name, ": got shape [",
                                           absl::StrJoin(tensor.shape, ", "), "], want [")));
  };
  for (const F32Tensor& tensor : GetParam().tensors) {
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      std::vector<int64_t> shape = tensor.shape;
      ++shape[axis];
      expect_refused(Tensor(tensor.name, shape));
    }
    std::vector<int64_t> shape = tensor.shape;
    shape.insert(shape.begin(), 1);
    expect_refused(Tensor(tensor.name, shape));
    if (tensor.shape.size() == 1) continue;
    expect_refused(Tensor(tensor.name, {tensor.shape.rbegin(), tensor.shape.rend()}));
  }
}

// Each row has a name, a model type, fields, and the tensor for each table.
constexpr char kSaved[] = R"([
["T5", "t5", {"num_heads": 2, "relative_attention_num_buckets": 24},
  {"encoder": ["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", [24, 2]],
   "decoder": ["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", [24, 2]]}],
["Mt5", "mt5", {"num_heads": 2, "relative_attention_num_buckets": 24},
  {"encoder": ["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", [24, 2]],
   "decoder": ["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", [24, 2]]}],
["Umt5", "umt5", {"num_heads": 2, "relative_attention_num_buckets": 24},
  {"encoder.layers.1":
    ["encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight", [24, 2]],
   "decoder.layers.3":
    ["decoder.block.3.layer.0.SelfAttention.relative_attention_bias.weight", [24, 2]]}],
["LongT5Local", "longt5", {"num_heads": 2, "relative_attention_num_buckets": 24},
  {"encoder":
    ["encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias.weight", [24, 2]],
   "decoder": ["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", [24, 2]]}],
["LongT5Global", "longt5", {"num_heads": 2, "relative_attention_num_buckets": 24},
  {"encoder.global":
    ["encoder.block.0.layer.0.TransientGlobalSelfAttention.global_relative_attention_bias.weight",
     [24, 2]],
   "encoder":
    ["encoder.block.0.layer.0.TransientGlobalSelfAttention.relative_attention_bias.weight",
     [24, 2]]}],
["Bert", "bert", {"max_position_embeddings": 10, "hidden_size": 8},
  {"positions": ["bert.embeddings.position_embeddings.weight", [10, 8]]}],
["BertWithoutHead", "bert", {"max_position_embeddings": 10, "hidden_size": 8},
  {"positions": ["embeddings.position_embeddings.weight", [10, 8]]}],
["BertDistances", "bert",
  {"max_position_embeddings": 9, "hidden_size": 8, "num_attention_heads": 2},
  {"encoder.layers.1": ["encoder.layer.1.attention.self.distance_embedding.weight", [17, 4]]}],
["Roberta", "roberta", {"max_position_embeddings": 10, "hidden_size": 8},
  {"positions": ["roberta.embeddings.position_embeddings.weight", [10, 8]]}],
["RobertaDistances", "roberta",
  {"max_position_embeddings": 9, "hidden_size": 8, "num_attention_heads": 2},
  {"encoder.layers.1": ["encoder.layer.1.attention.self.distance_embedding.weight", [17, 4]]}],
["Gpt2", "gpt2", {"n_positions": 10, "n_embd": 8},
  {"positions": ["transformer.wpe.weight", [10, 8]]}],
["Opt", "opt", {"max_position_embeddings": 10, "hidden_size": 8},
  {"positions": ["model.decoder.embed_positions.weight", [12, 8]]}],
["Bart", "bart", {"max_position_embeddings": 10, "d_model": 8},
  {"encoder.positions": ["model.encoder.embed_positions.weight", [12, 8]],
   "decoder.positions": ["model.decoder.embed_positions.weight", [12, 8]]}],
["Mpnet", "mpnet", {"max_position_embeddings": 10, "hidden_size": 8},
  {"positions": ["mpnet.embeddings.position_embeddings.weight", [10, 8]]}],
["MpnetBias", "mpnet", {"relative_attention_num_buckets": 24, "num_attention_heads": 2},
  {"encoder": ["mpnet.encoder.relative_attention_bias.weight", [24, 2]]}],
["Swin", "swin", {"window_size": 2, "num_heads": [1, 2]},
  {"encoder.layers.1.blocks.0":
    ["swin.encoder.layers.1.blocks.0.attention.self.relative_position_bias_table", [9, 2]]}],
["SwinPositions", "swin", {"image_size": [8, 16], "patch_size": 2, "embed_dim": 6},
  {"positions": ["swin.embeddings.position_embeddings", [1, 32, 6]]}],
["SwinV2", "swinv2", {"num_heads": [1, 2]},
  {"encoder.layers.1.blocks.3.mlp.0.bias":
    ["swinv2.encoder.layers.1.blocks.3.attention.self.continuous_position_bias_mlp.0.bias", [512]],
   "encoder.layers.1.blocks.3.mlp.0.weight":
    ["swinv2.encoder.layers.1.blocks.3.attention.self.continuous_position_bias_mlp.0.weight",
     [512, 2]],
   "encoder.layers.1.blocks.3.mlp.2.weight":
    ["swinv2.encoder.layers.1.blocks.3.attention.self.continuous_position_bias_mlp.2.weight",
     [2, 512]]}],
["SwinV2Positions", "swinv2", {"image_size": 8, "patch_size": 2, "embed_dim": 6},
  {"positions": ["swinv2.embeddings.position_embeddings", [1, 17, 6]]}],
["Beit", "beit", {"image_size": 16, "patch_size": 8, "num_attention_heads": 2},
  {"encoder.layers.1":
    ["beit.encoder.layer.1.attention.attention.relative_position_bias.relative_position_bias_table",
     [12, 2]]}],
["BeitShared", "beit", {"image_size": 16, "patch_size": 8, "num_attention_heads": 2},
  {"encoder": ["beit.encoder.relative_position_bias.relative_position_bias_table", [12, 2]]}],
["BeitPositions", "beit", {"image_size": 16, "patch_size": 8, "hidden_size": 8},
  {"positions": ["beit.embeddings.position_embeddings", [1, 5, 8]]}],
["Vit", "vit", {"image_size": 16, "patch_size": 8, "hidden_size": 8},
  {"positions": ["vit.embeddings.position_embeddings", [1, 5, 8]]}],
["Deit", "deit", {"image_size": [32, 64], "patch_size": [16, 8], "hidden_size": 8},
  {"positions": ["deit.embeddings.position_embeddings", [1, 18, 8]]}],
["Detr", "detr", {"d_model": 8},
  {"columns": ["model.position_embedding.column_embeddings.weight", [50, 4]],
   "rows": ["model.position_embedding.row_embeddings.weight", [50, 4]]}],
["DetrQueries", "detr", {"num_queries": 3, "d_model": 8},
  {"queries": ["model.query_position_embeddings.weight", [3, 8]]}],
["DebertaV2Positions", "deberta-v2", {"max_position_embeddings": 10, "hidden_size": 8},
  {"positions": ["deberta.embeddings.position_embeddings.weight", [10, 8]]}],
["DebertaV2Buckets", "deberta-v2", {"position_buckets": 4, "hidden_size": 6},
  {"encoder": ["deberta.encoder.rel_embeddings.weight", [8, 6]]}],
["DebertaV2Distances", "deberta-v2", {"max_relative_positions": 4, "hidden_size": 6},
  {"encoder": ["deberta.encoder.rel_embeddings.weight", [8, 6]]}]
])";

std::vector<Saved> AllSaved() {
  std::vector<Saved> all;
  for (const nlohmann::json& row : nlohmann::json::parse(kSaved)) {
    Saved& saved = all.emplace_back();
    saved.name = row[0].get<std::string>();
    saved.model_type = row[1].get<std::string>();
    saved.fields = row[2];
    for (const auto& [table, tensor] : row[3].items()) {
      saved.tables.push_back("m/" + table);
      saved.tensors.push_back(
          Tensor(tensor[0].get<std::string>(), tensor[1].get<std::vector<int64_t>>()));
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Types, SavedCheckpoint, testing::ValuesIn(AllSaved()),
                         [](const auto& info) { return info.param.name; });

constexpr char kDistances[] = "encoder.layer.1.attention.self.distance_embedding.weight";

// Mounts one tensor of a model whose config.json has additional fields, and returns the spec for
// `table`.
class CheckpointSpec : public Checkpoint {
 protected:
  std::optional<v1::TensorSpec> SpecOf(const std::string& table, const std::string& model_type,
                                       const std::string& fields,
                                       const std::vector<F32Tensor>& tensors) {
    WriteConfig(absl::StrCat("{\"model_type\":\"", model_type, "\"", fields, "}"));
    WriteModel(tensors);
    const absl::StatusOr<TableSetPtr> set = Load();
    EXPECT_THAT(set, IsOk());
    if (!set.ok()) return std::nullopt;
    set_ = *set;
    const MountedTable* mounted = set_->Find("m/" + table);
    EXPECT_NE(mounted, nullptr);
    return mounted == nullptr ? std::nullopt : mounted->spec;
  }

  v1::TensorSpec Of(const std::string& table, const std::string& model_type,
                    const std::string& fields, const std::vector<F32Tensor>& tensors) {
    const auto spec = SpecOf(table, model_type, fields, tensors);
    EXPECT_TRUE(spec.has_value());
    return spec.value_or(v1::TensorSpec());
  }

  v1::LearnedAbsolute Positions(const std::string& model_type, const std::string& tensor,
                                const std::string& fields) {
    return Of("positions", model_type, fields, {Tensor(tensor, {12, 8}, 3)}).learned_absolute();
  }

  // Returns a table to which the last spec refers.
  Table TableAt(const v1::TableRef& ref) const { return *set_->FindDigest(ref.sha256()); }

  TableSetPtr set_;
};

TEST_F(CheckpointSpec, PositionsStartAtFirstRowOfModel) {
  const std::string bert = "embeddings.position_embeddings.weight";
  const std::string rows12 = R"(,"max_position_embeddings":12,"hidden_size":8)";
  const std::string rows10 = R"(,"max_position_embeddings":10,"hidden_size":8)";
  EXPECT_EQ(Positions("bert", bert, rows12).offset(), 0);
  EXPECT_EQ(TableAt(Positions("bert", bert, rows12).table()).At(0), 3);
  EXPECT_EQ(Positions("gpt2", "wpe.weight", rows12).offset(), 0);
  EXPECT_EQ(Positions("opt", "decoder.embed_positions.weight", rows10).offset(), 2);
  EXPECT_EQ(Positions("roberta", bert, rows12).offset(), 2);
  EXPECT_EQ(Positions("roberta", bert, rows12 + R"(,"pad_token_id":4)").offset(), 5);
  EXPECT_EQ(Positions("mpnet", bert, rows12 + R"(,"pad_token_id":4)").offset(), 2);
  EXPECT_EQ(Positions("deberta-v2", bert, rows12).offset(), 0);
  EXPECT_FALSE(Positions("roberta", bert, rows12).has_padding_idx());
  const std::vector<F32Tensor> bart = {Tensor("model.encoder.embed_positions.weight", {12, 8}),
                                       Tensor("model.decoder.embed_positions.weight", {12, 8})};
  for (const char* side : {"encoder.positions", "decoder.positions"}) {
    EXPECT_EQ(Of(side, "bart", rows10, bart).learned_absolute().offset(), 2);
  }
}

TEST_F(CheckpointSpec, DistancesAreQueryMinusKey) {
  for (const char* model_type : {"bert", "roberta"}) {
    const v1::TensorSpec spec = Of("encoder.layers.1", model_type,
                                   R"(,"position_embedding_type":"relative_key",
            "max_position_embeddings":9,"hidden_size":8,
            "num_attention_heads":2)",
                                   {Tensor(kDistances, {17, 4})});
    const v1::LearnedRelative& distances = spec.learned_relative();
    EXPECT_TRUE(distances.has_vectors());
    EXPECT_EQ(distances.left(), 8);
    EXPECT_EQ(distances.right(), 8);
    EXPECT_EQ(distances.beyond(), v1::BEYOND_REACH_REFUSE);
    EXPECT_EQ(distances.sign(), v1::RELATIVE_SIGN_QUERY_MINUS_KEY);
  }
}

TEST_F(CheckpointSpec, PositionsNotAddedHaveNoSpec) {
  for (const char* model_type : {"bert", "roberta"}) {
    EXPECT_FALSE(SpecOf("positions", model_type,
                        R"(,"position_embedding_type":"relative_key",
                         "max_position_embeddings":9,"hidden_size":4)",
                        {Tensor("embeddings.position_embeddings.weight", {9, 4})})
                     .has_value());
  }
  EXPECT_FALSE(SpecOf("positions", "swinv2", R"(,"image_size":8,"embed_dim":8)",
                      {Tensor("embeddings.position_embeddings", {1, 5, 8})})
                   .has_value());
}

TEST_F(CheckpointSpec, PatchPositionsDropBatchAxis) {
  const std::vector<F32Tensor> tensors = {Tensor("embeddings.position_embeddings", {1, 6, 8})};
  const std::pair<const char*, const char*> models[] = {
      {"vit", R"(,"image_size":[80,16],"hidden_size":8)"},
      {"deit", R"(,"image_size":32,"hidden_size":8)"},
      {"swin", R"(,"image_size":[8,12],"embed_dim":8)"}};
  for (const auto& [model_type, fields] : models) {
    const v1::LearnedAbsolute spec =
        Of("positions", model_type, fields, tensors).learned_absolute();
    EXPECT_THAT(TableAt(spec.table()).shape(), ElementsAre(6, 8));
    EXPECT_EQ(spec.offset(), 0);
  }
}

TEST_F(CheckpointSpec, MpnetBucketsIgnoreTheConfig) {
  const auto tensors = [](int64_t rows) {
    return std::vector<F32Tensor>{Tensor("encoder.relative_attention_bias.weight", {rows, 2})};
  };
  const std::string heads = R"(,"num_attention_heads":2)";
  EXPECT_EQ(Of("encoder", "mpnet", heads + R"(,"relative_attention_max_distance":64)", tensors(32))
                .t5()
                .max_distance(),
            128);
  EXPECT_FALSE(
      SpecOf("encoder", "mpnet", heads + R"(,"relative_attention_num_buckets":64)", tensors(64))
          .has_value());
}

TEST_F(CheckpointSpec, SwinHasModelWindowAndStageHeads) {
  const std::string blocks = "encoder.layers.1.blocks.3";
  const v1::TensorSpec spec =
      Of(blocks, "swin", R"(,"window_size":3,"num_heads":[3,6])",
         {Tensor(blocks + ".attention.self.relative_position_bias_table", {25, 6})});
  EXPECT_THAT(spec.grid_relative().window(), ElementsAre(3, 3));
  EXPECT_EQ(spec.grid_relative().num_heads(), 6);
  EXPECT_FALSE(spec.grid_relative().class_token());
}

class SwinV2Spec : public CheckpointSpec {
 protected:
  v1::MlpBias OfStage(int stage, const std::string& fields) {
    const std::string blocks = absl::StrCat("encoder.layers.", stage, ".blocks.0");
    const std::string mlp = blocks + ".attention.self.continuous_position_bias_mlp.";
    const std::vector<F32Tensor> tensors = {Tensor(mlp + "0.weight", {512, 2}, 1),
                                            Tensor(mlp + "0.bias", {512}, 2),
                                            Tensor(mlp + "2.weight", {6, 512}, 3)};
    const std::string with_heads = fields + R"(,"num_heads":[6,6,6,6])";
    // All three tables have the same spec.
    const v1::TensorSpec spec = Of(blocks + ".mlp.0.bias", "swinv2", with_heads, tensors);
    for (const char* part : {".mlp.0.weight", ".mlp.2.weight"}) {
      EXPECT_EQ(Of(blocks + part, "swinv2", with_heads, tensors).SerializeAsString(),
                spec.SerializeAsString());
    }
    return spec.mlp_bias();
  }
};

TEST_F(SwinV2Spec, CombinesTablesOfOneNetwork) {
  const v1::MlpBias spec = OfStage(0, "");
  EXPECT_THAT(spec.window(), ElementsAre(7, 7));
  EXPECT_EQ(spec.activation(), v1::ACTIVATION_RELU);
  EXPECT_EQ(spec.coordinates(), v1::COORDINATES_LOG2_NORMALIZED);
  EXPECT_EQ(spec.output(), v1::MLP_OUTPUT_SIGMOID_16);
  EXPECT_EQ(spec.num_heads(), 6);
  EXPECT_THAT(spec.pretrained_window(), IsEmpty());
  EXPECT_EQ(TableAt(spec.layers(0).weight()).At(0), 1);
  EXPECT_EQ(TableAt(spec.layers(0).bias()).At(0), 2);
  EXPECT_EQ(TableAt(spec.layers(1).weight()).At(0), 3);
}

TEST_F(SwinV2Spec, IncompleteNetworkHasNoSpec) {
  EXPECT_FALSE(SpecOf("encoder.layers.0.blocks.0.mlp.0.bias", "swinv2", "",
                      {Tensor("encoder.layers.0.blocks.0.attention.self."
                              "continuous_position_bias_mlp.0.bias",
                              {512})})
                   .has_value());
}

TEST_F(SwinV2Spec, WindowIsClampedToStage) {
  const std::string fields = R"(,"image_size":[256,192],"patch_size":4,"window_size":16)";
  EXPECT_THAT(OfStage(0, fields).window(), ElementsAre(16, 16));
  EXPECT_THAT(OfStage(2, fields).window(), ElementsAre(16, 16));
  EXPECT_THAT(OfStage(3, fields).window(), ElementsAre(8, 8));
}

TEST_F(SwinV2Spec, PretrainedWindowIsPerStage) {
  const std::string fields = R"(,"pretrained_window_sizes":[12,0,6])";
  EXPECT_THAT(OfStage(0, fields).pretrained_window(), ElementsAre(12, 12));
  EXPECT_THAT(OfStage(1, fields).pretrained_window(), IsEmpty());
  EXPECT_THAT(OfStage(2, fields).pretrained_window(), ElementsAre(6, 6));
}

TEST_F(CheckpointSpec, BeitWindowFollowsImagePatches) {
  const auto tensors = [](int64_t patches, int64_t rows) {
    return std::vector<F32Tensor>{
        Tensor("embeddings.position_embeddings", {1, patches + 1, 8}),
        Tensor("encoder.relative_position_bias.relative_position_bias_table", {rows, 2})};
  };
  const std::string sizes = R"(,"hidden_size":8,"num_attention_heads":2)";
  const v1::TensorSpec spec =
      Of("encoder", "beit", sizes + R"(,"image_size":[48,54],"patch_size":16)", tensors(9, 28));
  EXPECT_THAT(spec.grid_relative().window(), ElementsAre(3, 3));
  EXPECT_EQ(spec.grid_relative().num_heads(), 2);
  EXPECT_TRUE(spec.grid_relative().class_token());
  EXPECT_FALSE(spec.grid_relative().has_resample());
  // transformers swaps the sides for the bias, and treats positions as if the image were square.
  const std::string oblong = sizes + R"(,"image_size":[32,64],"patch_size":16)";
  const v1::TensorSpec bias = Of("encoder", "beit", oblong, tensors(8, 24));
  EXPECT_THAT(bias.grid_relative().window(), ElementsAre(2, 4));
  EXPECT_THAT(bias.grid_relative().resample().source(), ElementsAre(7, 3));
  EXPECT_FALSE(SpecOf("positions", "beit", oblong, tensors(8, 24)).has_value());
  const v1::LearnedAbsolute positions =
      Of("positions", "beit", sizes + R"(,"image_size":[16,64],"patch_size":16)", tensors(4, 10))
          .learned_absolute();
  EXPECT_THAT(positions.resample().source(), ElementsAre(2, 2));
  EXPECT_THAT(positions.resample().target(), ElementsAre(1, 4));
  EXPECT_EQ(positions.resample().prefix_rows(), 1);
  EXPECT_EQ(positions.resample().filter(), v1::FILTER_CUBIC);
}

TEST_F(CheckpointSpec, DebertaIndicesMatchTableRows) {
  const std::vector<F32Tensor> tensors = {Tensor("encoder.rel_embeddings.weight", {64, 8})};
  const v1::Deberta buckets =
      Of("encoder", "deberta-v2",
         R"(,"hidden_size":8,"position_buckets":32,"max_relative_positions":-1)", tensors)
          .deberta();
  EXPECT_EQ(buckets.bucket_size(), 32);
  EXPECT_EQ(buckets.max_position(), 512);
  EXPECT_EQ(buckets.term(), v1::DEBERTA_TERM_CONTENT_TO_POSITION);
  EXPECT_EQ(buckets.edge(), v1::DEBERTA_EDGE_HF);
  EXPECT_EQ(buckets.bucket_rule(), v1::BUCKET_RULE_FLOAT32_LOG);
  const v1::Deberta distances =
      Of("encoder", "deberta-v2", R"(,"hidden_size":8,"max_position_embeddings":32)", tensors)
          .deberta();
  EXPECT_EQ(distances.bucket_size(), 0);
  EXPECT_EQ(distances.max_position(), 32);
}

TEST_F(CheckpointSpec, FieldAliasesAreAccepted) {
  EXPECT_EQ(Positions("deberta-v2", "embeddings.position_embeddings.weight",
                      R"(,"max_position_embeddings":12,"hidden_size":16,
                          "embedding_size":8)")
                .offset(),
            0);
  const std::string both = R"(,"max_position_embeddings":12,"hidden_size":8,"n_positions":7)";
  EXPECT_EQ(Positions("gpt2", "wpe.weight", both).offset(), 0);
  // In a Swin config, hidden_size is the width of the last stage.
  EXPECT_TRUE(SpecOf("positions", "swin", R"(,"image_size":8,"embed_dim":8,"hidden_size":64)",
                     {Tensor("embeddings.position_embeddings", {1, 4, 8})})
                  .has_value());
  EXPECT_EQ(Of("encoder", "t5", R"(,"num_attention_heads":2)",
               {Tensor("encoder.block.0" + kBias, {32, 2})})
                .t5()
                .num_heads(),
            2);
}

TEST_F(CheckpointSpec, ContradictingConfigIsNamed) {
  const auto expect = [this](const std::string& config, const std::vector<F32Tensor>& tensors,
                             const std::string& says) {
    WriteModel(tensors);
    ExpectInvalid(config, says);
  };
  const std::vector<F32Tensor> beit = {
      Tensor("encoder.relative_position_bias.relative_position_bias_table", {12, 2})};
  expect(R"({"model_type":"beit"})", beit,
         "/model.safetensors:encoder.relative_position_bias."
         "relative_position_bias_table: got shape [12, 2], want [732, 12]; "
         "config.json: image_size = 224 by default, patch_size = 16 by "
         "default, num_attention_heads = 12 by default");
  expect(R"({"model_type":"beit","image_size":[32,"wide"]})", beit,
         "config.json: image_size: got [32,\"wide\"], want a positive integer, "
         "or a list of two");
  expect(R"({"model_type":"beit","patch_size":0})", beit,
         "config.json: patch_size: got 0, want a positive integer");
  const std::string mlp = "encoder.layers.2.blocks.0.attention.self.continuous_position_bias_mlp.";
  expect(R"({"model_type":"swinv2","num_heads":[3]})", {Tensor(mlp + "2.weight", {6, 512})},
         "num_heads: got [3], want a list with an integer at index 2");
  expect(R"({"model_type":"swinv2","num_heads":[3,6,6],
             "pretrained_window_sizes":[8,8]})",
         {Tensor(mlp + "0.weight", {512, 2}), Tensor(mlp + "0.bias", {512}),
          Tensor(mlp + "2.weight", {6, 512})},
         "pretrained_window_sizes: got [8,8], want a list with an integer at "
         "index 2");
  expect(R"({"model_type":"swinv2","window_size":8589934592})",
         {Tensor(mlp + "0.weight", {512, 3})},
         "got shape [512, 3], want [512, 2]; config.json: does not state it");
  const std::vector<F32Tensor> bert = {Tensor("embeddings.position_embeddings.weight", {9, 4})};
  const std::string sizes = R"("max_position_embeddings":9,"hidden_size":4)";
  expect(R"({"model_type":"bert","position_embedding_type":7,)" + sizes + "}", bert,
         "config.json: position_embedding_type: got 7, want a string");
  for (const char* padding : {"-2", "8", "9", "1000"}) {
    expect(
        absl::StrCat(R"({"model_type":"roberta","pad_token_id":)", padding, ",", sizes, "}"), bert,
        absl::StrCat("config.json: pad_token_id: got ", padding, ", want an integer in [-1, 7]"));
  }
  // The product of the largest allowed values does not overflow.
  expect(R"({"model_type":"vit","image_size":1073741824,"patch_size":1})",
         {Tensor("embeddings.position_embeddings", {1, 5, 8})},
         "want [1, 1152921504606846977, 768]");
}

TEST_F(Checkpoint, ErrorsNameFileAndField) {
  EXPECT_THAT(Load(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json: no such file")));
  ExpectInvalid("[]", "config.json: not a JSON object");
  ExpectInvalid("{}",
                "model_type: got '', want one of "
                "albert, bart, beit, bert,");
  ExpectInvalid(R"({"model_type":"llama"})",
                folder_.string() + ": config.json: model_type: got 'llama', want one");
  ExpectInvalid(R"({"model_type":["t5"]})", "model_type: got [\"t5\"], want a");
  WriteConfig(R"({"model_type":"t5"})");
  EXPECT_THAT(Load(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("model.safetensors.index.json")));
  WriteFile(folder_ / "model.safetensors.index.json", R"({"weight_map":{"x":"../x.safetensors"}})");
  EXPECT_THAT(Load(), IsInvalidWith("x: got \"../x.safetensors\", want a file name"));
  WriteModel({Tensor("shared.weight", {1})});
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("none of the tensors of a t5"),
                                     HasSubstr("encoder.block.0.layer.0"))));
  WriteModel({Tensor("encoder.block.0" + kBias, {32, 8})});
  ASSERT_THAT(Load(), IsOk());
  ExpectInvalid(R"({"model_type":"t5","relative_attention_max_distance":"far"})",
                "config.json: relative_attention_max_distance: got "
                "\"far\", want an integer");
  ExpectInvalid(
      R"({"model_type":"t5",
          "relative_attention_max_distance":18446744073709551615})",
      "got 18446744073709551615, want an "
      "integer in [-2^30, 2^30]");
}

}  // namespace
}  // namespace attnbias::checkpoint_test
