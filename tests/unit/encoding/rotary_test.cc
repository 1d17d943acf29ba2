// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/encoding/absolute/rotary_frequencies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/encoding/mpfr_oracle.h"
#include "tests/unit/support/filled.h"

namespace attnbias::rotary_test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int64_t kCos = 0;
constexpr int64_t kSin = 1;

v1::Rotary Rotary(const std::string& text) { return Parse<v1::Rotary>(text); }

// A spec's two parts, as rows of doubles.
class Parts {
 public:
  Parts(const v1::Rotary& spec, DataType type, double scale = 1)
      : type_(type),
        width_(MakeWith(spec)->width),
        evaluator_(
            MakeWith(spec, Scaled(scale))->prepare({type, scale}, *SupportedKernelSets().front())) {
  }

  Bytes Rows(Range rows, Range lanes = {0, 2}) const {
    const int64_t stride = rows.size() * width_ * SizeOf(type_);
    Bytes bytes(lanes.size() * stride);
    evaluator_->Fill({lanes, rows}, bytes.data(), stride);
    return bytes;
  }

  std::vector<double> Row(int64_t position, int64_t lane) const {
    const Bytes bytes = Rows({position, position + 1}, {lane, lane + 1});
    std::vector<double> row;
    for (int64_t i = 0; i < width_; ++i) {
      row.push_back(ElementAt(type_, bytes.data(), i));
    }
    return row;
  }

 private:
  DataType type_;
  int64_t width_;
  std::unique_ptr<const Evaluator> evaluator_;
};

std::vector<double> DerivedOf(const v1::Rotary& spec, std::string_view name) {
  for (const DerivedValue& value : MakeWith(spec)->derive()) {
    if (value.name == name) return value.values;
  }
  return {};
}

// ---------------------------------------------------------------------------
// Golden parameters: computed to 60 digits with mpmath from transformers' formulas; they agree with
// the digits published for these models.

struct GoldenPair {
  int64_t pair;
  const char* inverse_frequency;
};

struct Golden {
  const char* name;
  v1::Rotary spec;
  const char* attention_factor;
  const char* rope_theta;
  std::vector<GoldenPair> pairs;
};

v1::Rotary Dynamic(int64_t sequence_length) {
  return Rotary(
      absl::StrCat("head_dim: 128 dynamic {factor: 2 "
                   "max_position_embeddings: 2048 sequence_length: ",
                   sequence_length, "}"));
}

v1::Rotary QuadrupleYarn() {
  return Rotary("head_dim: 64 yarn {factor: 4 original_max_position_embeddings: 4096}");
}

v1::Rotary DeepseekV3() {
  return Rotary(
      "head_dim: 64 yarn {factor: 40 original_max_position_embeddings: 4096 "
      "mscale: 1 mscale_all_dim: 1}");
}

v1::Rotary GptOss() {
  return Rotary(
      "head_dim: 64 rope_theta: 150000 yarn {factor: 32 "
      "original_max_position_embeddings: 4096 truncate: false}");
}

// Returns a spec whose correction range is a single point.
v1::Rotary SteepYarn() {
  return Rotary(
      "head_dim: 64 yarn {factor: 8 original_max_position_embeddings: 64 "
      "truncate: false beta_fast: 4 beta_slow: 4}");
}

v1::Rotary Llama3() {
  return Rotary(
      "head_dim: 128 rope_theta: 500000 llama3 {factor: 8 "
      "original_max_position_embeddings: 8192 low_freq_factor: 1 "
      "high_freq_factor: 4}");
}

v1::Rotary Longrope(int64_t sequence_length) {
  return Rotary(
      absl::StrCat("head_dim: 6 longrope {max_position_embeddings: 131072 "
                   "original_max_position_embeddings: 4096 "
                   "short_factor: [1.5, 2.25, 40.1] long_factor: [1, 1, 1] "
                   "sequence_length: ",
                   sequence_length, "}"));
}

v1::Rotary Proportional() {
  return Rotary(
      "head_dim: 512 rope_theta: 1e6 partial_rotary_factor: 0.25 "
      "proportional {}");
}

std::vector<Golden> Goldens() {
  return {
      {"Default",
       Rotary("head_dim: 64"),
       "1",
       "10000",
       {{0, "1"},
        {1, "0.749894209332455827302184275615136438441867918164971014620419"},
        {17, "0.00749894209332455827302184275615136438441867918164971014620419"},
        {31,
         "0.00013335214321633240256759317152953310924156679647643709933295"
         "5"}}},
      {"PartOfAHead",
       Rotary("head_dim: 256 partial_rotary_factor: 0.25"),
       "1",
       "10000",
       {{1, "0.749894209332455827302184275615136438441867918164971014620419"}}},
      {"Linear",
       Rotary("head_dim: 64 linear {factor: 2.5}"),
       "1",
       "10000",
       {{0, "0.4"}, {17, "0.00299957683732982330920873710246054575376747167265988405848168"}}},
      {"DynamicUpToTheTrainedLength",
       Dynamic(2048),
       "1",
       "10000",
       {{63,
         "0.00011547819846894581796664828872955082815669480414796111299774"
         "3"}}},
      {"DynamicByOne",
       Dynamic(2049),
       "1",
       "10009.9207117858564746348422858021757645056123160927008198351",
       {{40, "0.00316031848644949508366709590146584930048784040559234679611518"}}},
      {"DynamicTwice",
       Dynamic(4096),
       "1",
       "30527.7367488066983148105624970909600879144824355709881053821",
       {{1, "0.850994291341216229943385500836029609662269192444741348907069"}}},
      {"DynamicFourTimes",
       Dynamic(8192),
       "1",
       "72195.8600865093872115567196515749704685745300095321467921037",
       {{63,
         "0.00001649688549556368828094975553279297545095640059256587328539"
         "18"}}},
      {"Ntk",
       Rotary("head_dim: 128 ntk {factor: 4}"),
       "1",
       "40889.9424324862164130812245434699228250053948541861044825099",
       {{1, "0.84711718515120681339146288360202230791518790502806916434536"},
        {40, "0.00131141361463271227761367413539091092689359618736686674880143"}}},
      {"DeepseekV3",
       DeepseekV3(),
       "1",
       "10000",
       {{10, "0.0562341325190349080394951039776481231468251043098691664081689"},
        {16, "0.0055"},
        {22, "0.000177827941003892280122542119519268484473579052640225535801183"},
        {31,
         "0.00000333380358040831006418982928823832773103916991191092748332"
         "387"}}},
      {"Qwen25",
       Rotary("head_dim: 128 rope_theta: 1e6 yarn {factor: 4 "
              "original_max_position_embeddings: 32768}"),
       "1.13862943611198906188344642429163531361510002687205105082414",
       "1000000",
       {{23, "0.00697830584859866338414831761727045912457743071236995129082623"},
        {32, "0.000602941176470588235294117647058823529411764705882352941176471"},
        {39, "0.0000649039432083702882435977582912887687319795176594981256178022"},
        {63,
         "0.00000031023444018792989152467683883776807344995081128094540566"
         "6468"}}},
      {"GptOss",
       GptOss(),
       "1.34657359027997265470861606072908828403775006718012762706034",
       "150000",
       {{8, "0.0508132748154614736280205243378477571752688616576878112586002"},
        {9, "0.0317056961846637659876554849860474946744019710414058254360119"},
        {17, "0.000129318701245062720607860761283893019526312708153803743121282"},
        {31,
         "0.00000030235114281192143738660317088338976163744895136503097255"
         "3398"}}},
      {"SteepYarn",
       SteepYarn(),
       "1.2079441541679835928251696364374529704226500403080765762362",
       "10000",
       {{3, "0.421696503428582248569013359509406378250966577101742598750236"},
        {4, "0.0395284707521047416499861693054089816714944392415652103357188"}}},
      {"Llama3",
       Llama3(),
       "1",
       "500000",
       {{28, "0.00321144599475259101854348885419029762004283807370916422550405"},
        {29, "0.0021665707635033586093415799479260115247104675830108806287081"},
        {34, "0.000178507812767996418523674725679713562464779411230799667513819"},
        {35, "0.0000955621235396468301986839671827029663257870579785903899877115"},
        {63,
         "0.00000030689259889145110890524337080717394040642457001278382581"
         "9881"}}},
      {"Longrope",
       Longrope(4096),
       "1.19023807142380833299989996856121087979436185998378897220141",
       "10000",
       {{0, "0.666666666666666666666666666666666666666666666666666666666667"},
        {1, "0.0206292837049456839662670060040864292291171072222721939451142"},
        {2,
         "0.000053726550873613058489009293893688380642710308884135066706565"
         "4"}}},
      {"Proportional",
       Proportional(),
       "1",
       "1000000",
       {{1, "0.947463525655375397756035754437223956682241817538122225121081"},
        {63,
         "0.033376246942920385461982629299648646548717095702169150292965"
         "4"}}},
  };
}

double ToDouble(const char* digits) { return std::strtod(digits, nullptr); }

TEST(RotaryParameters, MatchPublishedValues) {
  for (const Golden& golden : Goldens()) {
    const auto frequencies = DerivedOf(golden.spec, "inverse_frequencies");
    ASSERT_EQ(frequencies.size(), RotaryPairs(Completed(golden.spec))) << golden.name;
    for (const GoldenPair& pair : golden.pairs) {
      EXPECT_EQ(frequencies[pair.pair], ToDouble(pair.inverse_frequency))
          << golden.name << " " << pair.pair;
    }
    EXPECT_THAT(DerivedOf(golden.spec, "attention_factor"),
                testing::ElementsAre(ToDouble(golden.attention_factor)))
        << golden.name;
    EXPECT_THAT(DerivedOf(golden.spec, "rope_theta"),
                testing::ElementsAre(ToDouble(golden.rope_theta)))
        << golden.name;
  }
}

TEST(RotaryParameters, MscaleRatioSetsAttentionFactor) {
  EXPECT_THAT(DerivedOf(Changed(DeepseekV3(), "yarn {mscale: 0.707}"), "attention_factor"),
              testing::ElementsAre(0.921042355316339880780));
  EXPECT_THAT(
      DerivedOf(Changed(QuadrupleYarn(), "yarn {attention_factor: 0.75}"), "attention_factor"),
      testing::ElementsAre(0.75));
}

TEST(RotaryParameters, LongropeSwitchesBeyondTheOriginalLength) {
  EXPECT_EQ(DerivedOf(Longrope(4096), "inverse_frequencies")[0], 1 / 1.5);
  EXPECT_EQ(DerivedOf(Longrope(4097), "inverse_frequencies")[0], 1);
  v1::Rotary spec = Longrope(4096);
  spec.mutable_longrope()->set_factor(32);
  EXPECT_THAT(DerivedOf(spec, "attention_factor"), testing::ElementsAre(1.1902380714238083));
  spec.mutable_longrope()->set_factor(1);
  EXPECT_THAT(DerivedOf(spec, "attention_factor"), testing::ElementsAre(1));
  spec.mutable_longrope()->set_attention_factor(0.75);
  EXPECT_THAT(DerivedOf(spec, "attention_factor"), testing::ElementsAre(0.75));
}

TEST(RotaryParameters, AllFrequenciesEqualThoseComputedOneByOne) {
  for (const Golden& golden : Goldens()) {
    Rotation rotation;
    rotation.spec = Completed(golden.spec);
    const int64_t pairs = RotaryPairs(rotation.spec);
    rotation.axes = {AxisOfBase(1, 2 * pairs, v1::COLUMNS_INTERLEAVED)};
    for (int32_t pair = 0; pair < pairs; ++pair) {
      rotation.places.push_back(pair);
    }
    const InverseFrequencies frequencies(rotation, 384);
    int64_t pair = 0;
    frequencies.ForEach([&](const Real& each) {
      EXPECT_EQ(mpfr_cmp(each.get(), frequencies.Of(pair).get()), 0) << golden.name << " " << pair;
      ++pair;
    });
    EXPECT_EQ(pair, pairs);
  }
}

// ---------------------------------------------------------------------------
// Correct rounding

// Compares the columns of a golden pair with its sine and cosine, times the scale and the factor,
// at 600 bits.
void ExpectRounded(const Golden& golden, double scale, const std::vector<int64_t>& positions) {
  Number frequency, factor, value;
  mpfr_set_str(factor, golden.attention_factor, 10, MPFR_RNDN);
  mpfr_mul_d(factor, factor, scale, MPFR_RNDN);
  for (const DataType type : kFloatTypes) {
    const Parts table(golden.spec, type, scale);
    for (const int64_t position : positions) {
      const std::vector<double> rows[] = {table.Row(position, kCos), table.Row(position, kSin)};
      for (const GoldenPair& pair : golden.pairs) {
        mpfr_set_str(frequency, pair.inverse_frequency, 10, MPFR_RNDN);
        mpfr_mul_si(frequency, frequency, position, MPFR_RNDN);
        for (const int64_t lane : {kCos, kSin}) {
          lane == kCos ? mpfr_cos(value, frequency, MPFR_RNDN)
                       : mpfr_sin(value, frequency, MPFR_RNDN);
          mpfr_mul(value, value, factor, MPFR_RNDN);
          const double wanted = position == 0 && lane == kSin ? 0 : RoundedBy(value, type);
          EXPECT_TRUE(Same(rows[lane][pair.pair], wanted))
              << golden.name << " " << NameOf(type) << " position " << position << " pair "
              << pair.pair << " lane " << lane << ": got " << rows[lane][pair.pair] << ", want "
              << wanted;
        }
      }
    }
  }
}

// Positions at which 60 digits of a frequency suffice to decide every rounding to F64.
const std::vector<int64_t> kSomePositions = {
    -131071, -1000, -1,     0,      1,      2,       3,        5,     17,
    100,     255,   256,    257,    1023,   4095,    4096,     32767, 65535,
    65536,   99999, 131071, 262143, 262144, 1048575, 123456789};

TEST(RotaryRounding, IsCorrectWithEveryExtension) {
  for (const Golden& golden : Goldens()) {
    ExpectRounded(golden, 1, kSomePositions);
  }
}

TEST(RotaryRounding, IsCorrectWhenScaled) {
  for (const double scale : {-0.3, 12.0, 1e-9, 0x1p-800}) {
    for (const Golden& golden : Goldens()) {
      ExpectRounded(golden, scale, {-131071, 0, 1, 4095, 131071});
    }
  }
}

// Values 2^-23 below and above a rounding border, too close for an estimate to decide.
TEST(RotaryRounding, DecidesTiesOfTheFactor) {
  // sqrt(1 + ln 8 / ln 2) = 2.
  const v1::Rotary spec = Changed(Longrope(1),
                                  "longrope {original_max_position_embeddings: 2 "
                                  "max_position_embeddings: 16}");
  for (const double ulps : {1.0, 3.0}) {
    const double scale = 1 + ulps * 0x1p-24;
    const float wanted = static_cast<float>(2 * scale);
    EXPECT_EQ(Parts(spec, DataType::kF32, scale).Row(0, kCos)[0], wanted);
  }
}

TEST(RotaryRounding, ProportionalLeavesPairsUnrotated) {
  for (const DataType type : kFloatTypes) {
    const Parts table(Proportional(), type, 0.3);
    const std::vector<double> cosines = table.Row(12345, kCos);
    const std::vector<double> sines = table.Row(12345, kSin);
    Number scale;
    mpfr_set_d(scale, 0.3, MPFR_RNDN);
    int resting = 0;
    for (int pair = 64; pair < 256; ++pair) {
      EXPECT_TRUE(Same(cosines[pair], RoundedBy(scale, type)));
      EXPECT_TRUE(Same(sines[pair], 0));
      resting += Same(sines[256 + pair], 0) ? 1 : 0;
    }
    EXPECT_EQ(resting, 192);
    EXPECT_NE(sines[63], 0);
  }
}

// ---------------------------------------------------------------------------
// Given frequencies, and angles as frameworks compute them

TEST(RotaryGiven, FrequenciesReplaceComputedOnes) {
  const v1::Rotary given = Rotary("head_dim: 8 inverse_frequencies: [1, 0.1, 0, 0.001]");
  const Golden golden = {"Given",
                         given,
                         "1",
                         "",
                         {{0, "1"},
                          {1, "0.1000000000000000055511151231257827021181583404541015625"},
                          {3, "0.001000000000000000020816681711721685132943093776702880859375"}}};
  ExpectRounded(golden, 1, {-77, 0, 1, 1000, 131071});
  EXPECT_EQ(Parts(given, DataType::kF32).Row(9, kCos)[2], 1);
  EXPECT_THAT(DerivedOf(given, "inverse_frequencies"), testing::ElementsAre(1, 0.1, 0, 0.001));
  EXPECT_TRUE(DerivedOf(given, "rope_theta").empty());
}

TEST(RotaryFloat32, RoundsAnglesAsFrameworksDo) {
  std::mt19937_64 random(3);
  for (const double scale : {1.0, 0.7}) {
    const v1::Rotary spec = Changed(QuadrupleYarn(), "angle: ANGLE_PRECISION_FLOAT32");
    const auto frequencies = DerivedOf(spec, "inverse_frequencies");
    Number factor, value;
    mpfr_set_str(factor, "1.13862943611198906188344642429163531361510002687205105082414", 10,
                 MPFR_RNDN);
    mpfr_mul_d(factor, factor, scale, MPFR_RNDN);
    for (const DataType type : kFloatTypes) {
      const Parts table(spec, type, scale);
      for (int i = 0; i < 60; ++i) {
        const auto position = static_cast<int64_t>(random() >> (23 + random() % 41)) - 3;
        const std::vector<double> rows[] = {table.Row(position, kCos), table.Row(position, kSin)};
        for (size_t pair = 0; pair < frequencies.size(); ++pair) {
          const float inverse = static_cast<float>(frequencies[pair]);
          ASSERT_EQ(inverse, frequencies[pair]);
          const float angle = static_cast<float>(position) * inverse;
          for (const int64_t lane : {kCos, kSin}) {
            mpfr_set_flt(value, angle, MPFR_RNDN);
            lane == kCos ? mpfr_cos(value, value, MPFR_RNDN) : mpfr_sin(value, value, MPFR_RNDN);
            mpfr_mul(value, value, factor, MPFR_RNDN);
            const double wanted = position == 0 && lane == kSin ? 0 : RoundedBy(value, type);
            ASSERT_TRUE(Same(rows[lane][pair], wanted))
                << NameOf(type) << " position " << position << " pair " << pair << ": got "
                << rows[lane][pair] << ", want " << wanted;
          }
        }
      }
    }
  }
}

TEST(RotaryFloat32, DiffersFromExactAtLargePositions) {
  v1::Rotary spec = Rotary("head_dim: 64");
  const double exact = Parts(spec, DataType::kF32).Row(1048575, kCos)[1];
  spec.set_angle(v1::ANGLE_PRECISION_FLOAT32);
  const double rounded = Parts(spec, DataType::kF32).Row(1048575, kCos)[1];
  EXPECT_GT(std::fabs(exact - rounded), 1e-3);
}

// ---------------------------------------------------------------------------
// Layouts, windows and axes

TEST(RotaryLayouts, HaveTheSameNumbers) {
  for (const DataType type : kFloatTypes) {
    for (const v1::Rotary& spec : {Rotary("head_dim: 20"), Proportional()}) {
      for (const int64_t lane : {kCos, kSin}) {
        const auto row = [&](const std::string& layout) {
          return Parts(Changed(spec, "layout: ROTARY_LAYOUT_" + layout), type).Row(77, lane);
        };
        const std::vector<double> once = row("COMPACT");
        const size_t pairs = once.size();
        ASSERT_EQ(pairs, spec.head_dim() / 2);
        const std::vector<double> half = row("HALF");
        const std::vector<double> paired = row("INTERLEAVED");
        for (size_t m = 0; m < pairs; ++m) {
          EXPECT_EQ(half[m], once[m]);
          EXPECT_EQ(half[pairs + m], once[m]);
          EXPECT_EQ(paired[2 * m], once[m]);
          EXPECT_EQ(paired[2 * m + 1], once[m]);
        }
      }
    }
  }
}

TEST(RotaryRows, AreUnitVectorsWhoseProductsDependOnDistance) {
  const Parts table(Rotary("head_dim: 128"), DataType::kF64);
  const auto product = [&](int64_t p, int64_t q) {
    double sum = 0;
    for (const int64_t lane : {kCos, kSin}) {
      const std::vector<double> a = table.Row(p, lane);
      const std::vector<double> b = table.Row(q, lane);
      for (int m = 0; m < 64; ++m) sum += a[m] * b[m];
    }
    return sum;
  };
  EXPECT_NEAR(product(4711, 4711), 64, 1e-12);
  EXPECT_NEAR(product(4711, 4751), product(100000, 100040), 1e-11);
}

std::string AxesOf(const std::string& fields) {
  std::string axes;
  const EncodingPtr encoding = MakeWith(Rotary(fields));
  for (const AxisColumns& run : encoding->axis_columns) {
    EXPECT_EQ(run.columns.begin, static_cast<int64_t>(axes.size()));
    axes.append(run.columns.size(), static_cast<char>('0' + run.axis));
  }
  return axes;
}

TEST(RotaryAxes, HaveOneIdentityForTheSamePairs) {
  const auto identity = [](const std::string& pair_axis) {
    return MakeWith(Rotary("head_dim: 8 axes {} axes {}" + pair_axis))->identity;
  };
  EXPECT_EQ(identity(" pair_axis: [0, 0, 1, 1]"), identity(""));
  EXPECT_NE(identity(" pair_axis: [0, 1, 0, 1]"), identity(""));
}

TEST(RotaryAxes, FollowPairAxis) {
  const std::string dealt =
      "head_dim: 16 axes {} axes {} axes {} "
      "pair_axis: [0, 0, 0, 0, 1, 1, 2, 2] ";
  EXPECT_EQ(AxesOf(dealt), "0000112200001122");
  EXPECT_EQ(AxesOf(dealt + "layout: ROTARY_LAYOUT_INTERLEAVED"), "0000000011112222");
  EXPECT_EQ(AxesOf(dealt + "layout: ROTARY_LAYOUT_COMPACT"), "00001122");
  EXPECT_EQ(AxesOf("head_dim: 16 layout: ROTARY_LAYOUT_COMPACT "
                   "axes {} axes {} axes {} "
                   "pair_axis: [0, 1, 2, 0, 1, 2, 0, 0]"),
            "01201200");
  EXPECT_EQ(AxesOf("head_dim: 16"), "0000000000000000");
}

TEST(RotaryAxes, HaveEqualPairCountsByDefault) {
  const std::string halves = "axes {} axes {} ";
  EXPECT_EQ(AxesOf(halves + "head_dim: 20"), "00000111110000011111");
  EXPECT_EQ(AxesOf(halves + "head_dim: 20 partial_rotary_factor: 0.4"), "00110011");
}

TEST(RotaryAxes, WithoutALadderShareOneProgression) {
  const std::string plain = "head_dim: 16 linear {factor: 3}";
  EXPECT_EQ(DerivedOf(Rotary(plain + " axes {} axes {}"), "inverse_frequencies"),
            DerivedOf(Rotary(plain), "inverse_frequencies"));
}

TEST(RotaryAxes, LaddersRestartPerAxis) {
  const std::vector<double> wanted = {1, 0.1584893192461113485202, 0.02511886431509580111085,
                                      0.003981071705534972507703, 0.000630957344480193249434};
  const std::vector<double> chunked = DerivedOf(
      Rotary("head_dim: 20 axes {ladder {}} axes {ladder {base: 10000}}"), "inverse_frequencies");
  const std::vector<double> in_turn =
      DerivedOf(Rotary("head_dim: 20 axes {ladder {}} axes {ladder {}} "
                       "pair_axis: [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]"),
                "inverse_frequencies");
  for (int pair = 0; pair < 10; ++pair) {
    EXPECT_EQ(chunked[pair], wanted[pair % 5]);
    EXPECT_EQ(in_turn[pair], wanted[pair / 2]);
  }
}

TEST(RotaryAxes, SupportEveryKindOfLadder) {
  // 3 (12 / 3)^(-k / 2), and the given frequencies.
  const std::vector<double> frequencies =
      DerivedOf(Rotary("head_dim: 14 pair_axis: [0, 1, 0, 2, 0, 2, 1] "
                       "axes {ladder {timescales {min: 3 max: 12}}} "
                       "axes {ladder {frequencies {values: [0.25, 0]}}} "
                       "axes {length: 4}"),
                "inverse_frequencies");
  EXPECT_THAT(std::vector<double>(frequencies.begin(), frequencies.begin() + 3),
              testing::ElementsAre(3, 0.25, 1.5));
  EXPECT_EQ(frequencies[4], 0.75);
  EXPECT_EQ(frequencies[6], 0);
  // The other frequencies keep their places in the progression over all pairs.
  const std::vector<double> common = DerivedOf(Rotary("head_dim: 14"), "inverse_frequencies");
  EXPECT_EQ(frequencies[3], common[3] / 4);
  EXPECT_EQ(frequencies[5], common[5] / 4);
}

// Values at a transformed position x equal those at x without a transformation.
TEST(RotaryAxes, TransformPositions) {
  const auto parts = [](const std::string& axis, DataType type) {
    return Parts(
        Rotary("head_dim: 6 axes {" + axis + " ladder {frequencies {values: [1, 0.375, -0.01]}}}"),
        type);
  };
  for (const DataType type : kFloatTypes) {
    const Parts plain = parts("", type);
    for (const int64_t p : {-300, -1, 0, 1, 7, 12345}) {
      for (const int64_t lane : {kCos, kSin}) {
        EXPECT_EQ(parts("offset: 5", type).Row(p, lane), plain.Row(p + 5, lane));
        EXPECT_EQ(parts("offset: 0.5 scale: 2", type).Row(p, lane), plain.Row(2 * p + 1, lane));
        EXPECT_EQ(parts("offset: -0.25 scale: 3 length: 0.75", type).Row(p, lane),
                  plain.Row(4 * p - 1, lane));
        EXPECT_EQ(parts("scale: -2 length: 0.5 eps: 0.5", type).Row(p, lane),
                  plain.Row(-2 * p, lane));
      }
    }
  }
}

TEST(RotaryAxes, MayHaveDifferentOffsets) {
  const Parts both(Rotary("head_dim: 8 layout: ROTARY_LAYOUT_COMPACT pair_axis: [1, 0, 0, 1] "
                          "axes {offset: 0.5} axes {offset: -7}"),
                   DataType::kF32);
  const auto alone = [](const std::string& offset) {
    return Parts(Rotary("head_dim: 8 layout: ROTARY_LAYOUT_COMPACT axes {offset:" + offset + "}"),
                 DataType::kF32);
  };
  for (const int64_t lane : {kCos, kSin}) {
    const std::vector<double> row = both.Row(9, lane);
    const std::vector<double> first = alone("0.5").Row(9, lane);
    const std::vector<double> second = alone("-7").Row(9, lane);
    EXPECT_THAT(row, testing::ElementsAre(second[0], first[1], first[2], second[3]));
    EXPECT_NE(first[0], second[0]);
  }
}

// A list yields the same rows as consecutive positions, regardless of the frequencies.
TEST(RotaryAtReals, MatchesIntegerPositions) {
  std::vector<double> list;
  for (int64_t p = -30; p < 100; ++p) list.push_back(static_cast<double>(p));
  for (const v1::Rotary& spec : {Dynamic(5000), QuadrupleYarn(), DeepseekV3(), GptOss(),
                                 Rotary("head_dim: 16 proportional {} partial_rotary_factor: 0.25"),
                                 Rotary("head_dim: 6 inverse_frequencies: [1, 0, 0.25]"),
                                 Rotary("head_dim: 24 layout: ROTARY_LAYOUT_INTERLEAVED pair_axis: "
                                        "[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1] axes {offset: 0.5} "
                                        "axes {offset: 0.5 ladder {}}")}) {
    const auto encoding = MakeWith(spec);
    const auto positions =
        std::make_shared<const RealPositions>(std::max(spec.axes_size(), 1), list);
    for (const DataType type : kFloatTypes) {
      const int64_t stride = 130 * encoding->width * SizeOf(type);
      Bytes got(2 * stride);
      encoding->prepare_reals({type}, positions)->Fill({{0, 2}, {0, 130}}, got.data(), stride);
      EXPECT_EQ(got, Parts(spec, type).Rows({-30, 100}));
    }
  }
}

// A scale turns fractions into integers.
TEST(RotaryAtReals, UsesPositionOfEachAxis) {
  const std::string frequencies = " ladder {frequencies {values: [1, 0.375, -0.01]}}";
  const auto spec = Rotary("head_dim: 12 axes {scale: 4" + frequencies +
                           "} axes {offset: -0.5 scale: 2" + frequencies + "}");
  const auto positions =
      std::make_shared<const RealPositions>(RealPositions{{0.25, -1.75, 3.5}, {0, 0.5, 7.25}});
  Bytes got(2 * 3 * 12 * sizeof(double));
  MakeWith(spec)
      ->prepare_reals({DataType::kF64}, positions)
      ->Fill({{0, 2}, {0, 3}}, got.data(), 3 * 12 * sizeof(double));
  const Parts plain(Rotary("head_dim: 6 axes {" + frequencies + "}"), DataType::kF64);
  // The row numbers for the second axis are twice x.
  const Parts half(Rotary("head_dim: 6 axes {scale: 0.5" + frequencies + "}"), DataType::kF64);
  for (const int64_t lane : {kCos, kSin}) {
    for (int64_t row = 0; row < 3; ++row) {
      const std::vector<double> first = plain.Row(std::array{1, -7, 14}[row], lane);
      const std::vector<double> second = half.Row(std::array{-2, 0, 27}[row], lane);
      for (int64_t pair = 0; pair < 3; ++pair) {
        const int64_t at = (lane * 3 + row) * 12 + pair;
        EXPECT_EQ(ElementAt(DataType::kF64, got.data(), at), first[pair]);
        EXPECT_EQ(ElementAt(DataType::kF64, got.data(), at + 3), second[pair]);
      }
    }
  }
}

TEST(RotaryAxes, DeriveThetaOnlyIfUsed) {
  EXPECT_EQ(DerivedOf(Rotary("head_dim: 8 axes {ladder {}} axes {}"), "rope_theta"),
            std::vector<double>{10000});
  EXPECT_TRUE(DerivedOf(Rotary("head_dim: 8 axes {ladder {}}"), "rope_theta").empty());
}

// ---------------------------------------------------------------------------
// Fields that must be consistent, and identical tables

TEST(BadRotary, IsRejectedByName) {
  v1::Rotary no_factor = Longrope(1);
  no_factor.mutable_longrope()->clear_max_position_embeddings();
  v1::Rotary short_list = Longrope(1);
  short_list.mutable_longrope()->mutable_long_factor()->RemoveLast();
  const std::pair<v1::Rotary, const char*> kCases[] = {
      {Rotary("head_dim: 4 partial_rotary_factor: 0.25"), "rotary.partial_rotary_factor: got 0.25"},
      {Changed(Dynamic(1), "head_dim: 2"),
       "rotary.head_dim: got 2 rotated columns, want at least 4"},
      {Changed(QuadrupleYarn(), "yarn {beta_slow: 64}"),
       "rotary.yarn.beta_fast: got 32, want at least 64 (beta_slow)"},
      {Changed(QuadrupleYarn(), "yarn {mscale: 1}"),
       "rotary.yarn.mscale_all_dim: not set, want a number"},
      {Changed(QuadrupleYarn(), "yarn {mscale_all_dim: 1}"),
       "rotary.yarn.mscale_all_dim: got 1, want none without mscale"},
      {Changed(DeepseekV3(), "yarn {attention_factor: 1}"),
       "rotary.yarn.attention_factor: got 1, want none: mscale is set"},
      {Changed(QuadrupleYarn(), "rope_theta: 1"),
       "rotary.rope_theta: got 1, want more than 1 with yarn"},
      {Rotary("head_dim: 64 yarn {factor: 2}"),
       "rotary.yarn.original_max_position_embeddings: not set, want an "},
      {short_list, "rotary.longrope.long_factor: got 2 numbers, want 3"},
      {Changed(Longrope(1), "longrope {original_max_position_embeddings: 1}"),
       "rotary.longrope.original_max_position_embeddings: got 1, want an "
       "integer in [2, 2^40]"},
      {no_factor,
       "rotary.longrope.attention_factor: not set, want exactly one of factor, "
       "max_position_embeddings, attention_factor"},
      {Changed(Llama3(), "llama3 {high_freq_factor: 1}"),
       "rotary.llama3.high_freq_factor: got 1, want more than 1 "
       "(low_freq_factor)"},
      {Rotary("head_dim: 6 axes {} axes {}"),
       "rotary.axes: got 2 axes, want a divisor of 3 (the number of rotated pairs); "
       "or set pair_axis"},
      {Rotary("head_dim: 8 axes {} axes {} pair_axis: [0, 0, 1]"),
       "rotary.pair_axis: got 3 numbers, want 4, one for each rotated pair of columns"},
      {Rotary("head_dim: 4 axes {} axes {} pair_axis: [0, 2]"),
       "rotary.pair_axis[1]: got 2, want an integer in [0, 1], one of the "},
      {Rotary("head_dim: 4 axes {} axes {} pair_axis: [1, 1]"),
       "rotary.pair_axis: got no pair for axis 0, want at least one for each of the 2 "
       "axes"},
      {Rotary("head_dim: 4 pair_axis: [0, 0]"),
       "rotary.pair_axis: got 2 numbers, want none without axes"},
      {Rotary("head_dim: 8 linear {factor: 2} axes {ladder {}}"),
       "rotary.axes[0].ladder: got a ladder, want none with linear; "
       "or use ladder.frequencies instead of that field"},
      {Rotary("head_dim: 4 inverse_frequencies: [1, 1] axes {} "
              "axes {ladder {}}"),
       "rotary.axes[1].ladder: got a ladder, want none with inverse_frequencies"},
      {Rotary("head_dim: 4 rope_theta: 5 axes {ladder {}}"),
       "rotary.rope_theta: got 5, want none: every axis has a ladder"},
      {Rotary("head_dim: 4 axes {ladder {frequencies {values: 1}}}"),
       "rotary.axes[0].ladder.frequencies: got 1 numbers, want 2"},
      {Rotary("head_dim: 4 axes {ladder {frequencies {values: [0, 0]}}}"),
       "rotary.axes: got only zeros, want at least one nonzero frequency"},
      {Rotary("head_dim: 4 axes {} axes {scale: 0}"),
       "rotary.axes[1].scale: got 0, want a number in [-1e+06, 1e+06], of magnitude at least "
       "1e-12"},
      {Rotary("head_dim: 4 angle: ANGLE_PRECISION_FLOAT32 axes {scale: 2}"),
       "rotary.angle: got FLOAT32, want EXACT: axes[0] has a scale, an offset"},
      {Rotary("head_dim: 4 axes {} decay {}"), "rotary.decay: got a value, want none: axes is set"},
      {Rotary("head_dim: 4 proportional {} inverse_frequencies: [1, 1]"),
       "rotary.inverse_frequencies: got 2 numbers, want none with "
       "proportional"},
      {Rotary("head_dim: 4 inverse_frequencies: 1"),
       "rotary.inverse_frequencies: got 1 numbers, want 2"},
      {Rotary("head_dim: 4 inverse_frequencies: [1, -1]"),
       "rotary.inverse_frequencies[1]: got -1, want a number in [0, 1e+06], 0 or of "},
      {Rotary("head_dim: 4 inverse_frequencies: [nan, 1]"),
       "rotary.inverse_frequencies[0]: got nan"},
      {Rotary("head_dim: 4 inverse_frequencies: [1e-31, 1]"),
       "rotary.inverse_frequencies[0]: got 1e-31, want a number in [0, 1e+06], 0 or of "
       "magnitude at least 1e-30, or axes with ladder.frequencies of either sign"},
      {Rotary("head_dim: 4 inverse_frequencies: [0, 0]"),
       "rotary.inverse_frequencies: got only zeros"},
  };
  for (const auto& [spec, message] : kCases) {
    EXPECT_THAT(RefusalOf(spec), IsInvalid(message));
  }
  EXPECT_THAT(RefusalOf(Rotary("head_dim: 4"), kBuckets), IsInvalidWith("rotary has no indices"));
}

TEST(RotaryIdentity, FollowsTheNumbers) {
  EXPECT_EQ(IdentityOf(Rotary("head_dim: 8 axes {ladder {}} axes {scale: 1}")),
            IdentityOf(Rotary("head_dim: 8 axes {ladder {base: 10000}} axes {}")));
  EXPECT_EQ(IdentityOf(Proportional()),
            IdentityOf(Changed(Proportional(), "proportional {factor: 1}")));
  // Lengths that select the same table.
  EXPECT_EQ(IdentityOf(Dynamic(1)), IdentityOf(Dynamic(2048)));
  EXPECT_EQ(IdentityOf(Longrope(1)), IdentityOf(Longrope(4096)));
  EXPECT_EQ(IdentityOf(Longrope(4097)), IdentityOf(Longrope(131072)));
  ExpectAllDifferent({IdentityOf(Dynamic(2048)), IdentityOf(Dynamic(2049)),
                      IdentityOf(Longrope(4096)), IdentityOf(Longrope(4097))});
}

TEST(RotaryIdentity, LongropeFollowsActiveFactors) {
  for (const int length : {4096, 4097}) {
    v1::Rotary other_short = Longrope(length);
    other_short.mutable_longrope()->set_short_factor(1, 7);
    v1::Rotary other_long = Longrope(length);
    other_long.mutable_longrope()->set_long_factor(1, 7);
    EXPECT_EQ(IdentityOf(other_short) == IdentityOf(Longrope(length)), length > 4096);
    EXPECT_EQ(IdentityOf(other_long) == IdentityOf(Longrope(length)), length <= 4096);
  }
}

}  // namespace
}  // namespace attnbias::rotary_test
