// SPDX-License-Identifier: Apache-2.0
import attnbias.v1.AttentionBiasServiceGrpc;
import attnbias.v1.AttentionBiasServiceGrpc.AttentionBiasServiceBlockingStub;
import attnbias.v1.Encodings.Alibi;
import attnbias.v1.Encodings.T5;
import attnbias.v1.Service.DescribeTensorRequest;
import attnbias.v1.Service.GetServerInfoRequest;
import attnbias.v1.Service.GetTensorRequest;
import attnbias.v1.Service.StreamTensorRequest;
import attnbias.v1.Service.StreamTensorResponse;
import attnbias.v1.Service.TensorSpec;
import attnbias.v1.Tensor.DataType;
import attnbias.v1.Tensor.Form;
import attnbias.v1.Tensor.InlineTable;
import attnbias.v1.Tensor.Output;
import attnbias.v1.Tensor.PairExtent;
import attnbias.v1.Tensor.TableRef;
import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.rpc.BadRequest;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;

/**
 * Uses the service as a Java program that knows only the contract would: checks the answers to each
 * kind of call, and throws if one is wrong. Arguments: HOST:PORT CA_FILE TOKEN_FILE.
 */
public final class Smoke {
  // Makes gRPC retry by itself, after the delay in the server's status or, if it has none, the
  // policy's.
  private static final Map<String, ?> SERVICE_CONFIG =
      Map.of("methodConfig", List.of(Map.of(
          "name", List.of(Map.of("service", AttentionBiasServiceGrpc.SERVICE_NAME)),
          "retryPolicy", Map.of(
              "maxAttempts", 5.0,
              "initialBackoff", "0.1s",
              "maxBackoff", "2s",
              "backoffMultiplier", 2.0,
              "retryableStatusCodes", List.of("RESOURCE_EXHAUSTED", "UNAVAILABLE")))));

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = connect(arguments[0], Path.of(arguments[1]), Path.of(arguments[2]));
    var health = HealthGrpc.newBlockingStub(channel).check(HealthCheckRequest.getDefaultInstance());
    check(health.getStatus() == ServingStatus.SERVING, "health");
    var service = AttentionBiasServiceGrpc.newBlockingStub(channel);
    checkServerInfo(service);
    checkAlibi(service);
    checkT5(service);
    checkError(service);
    channel.shutdown();
  }

  private static ManagedChannel connect(String address, Path ca, Path token) throws Exception {
    var metadata = new Metadata();
    metadata.put(
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER),
        "Bearer " + Files.readString(token).strip());
    var tls = TlsChannelCredentials.newBuilder().trustManager(ca.toFile()).build();
    return Grpc.newChannelBuilder(address, tls)
        .intercept(MetadataUtils.newAttachHeadersInterceptor(metadata))
        .defaultServiceConfig(SERVICE_CONFIG)
        .build();
  }

  private static void checkServerInfo(AttentionBiasServiceBlockingStub service) {
    var info = service.getServerInfo(GetServerInfoRequest.getDefaultInstance());
    check(info.getEncodingsList().contains("alibi"), "encodings");
    check(info.getDataTypesList().contains(DataType.DATA_TYPE_F32), "element types");
  }

  private static void checkAlibi(AttentionBiasServiceBlockingStub service) {
    var spec = TensorSpec.newBuilder()
        .setAlibi(Alibi.newBuilder().setNumHeads(8))
        .setPair(PairExtent.newBuilder().setQueryLength(64).setKeyLength(48).setQueryOffset(3))
        .build();
    var described =
        service.describeTensor(DescribeTensorRequest.newBuilder().setSpec(spec).build());
    var answer = service.getTensor(GetTensorRequest.newBuilder().setSpec(spec).build());
    check(answer.getHeader().equals(described.getHeader()), "header");
    check(crc32c(answer.getData()) == answer.getCrc32C(), "checksum");

    var part = answer.getHeader().getParts(0);
    int heads = 8;
    int diagonals = 64 + 48 - 1;
    check(part.getForm() == Form.FORM_TOEPLITZ, "form");
    check(part.getShapeList().equals(List.of((long) heads, (long) diagonals)), "shape");
    FloatBuffer values = floats(answer.getData().asReadOnlyByteBuffer());
    for (int head = 0; head < heads; head++) {
      for (int diagonal = 0; diagonal < diagonals; diagonal++) {
        long distance = Math.abs(part.getFirstRelativePosition() + diagonal);
        check(values.get() == -distance * Math.pow(2, -(head + 1)), "ALiBi's number");
      }
    }
  }

  private static void checkT5(AttentionBiasServiceBlockingStub service) {
    int heads = 8;
    int length = 384;
    ByteBuffer table = ByteBuffer.allocate(4 * 32 * heads).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < 32 * heads; i++) {
      table.putFloat(4 * i, i / 7f);
    }
    var inline = InlineTable.newBuilder()
        .setDataType(DataType.DATA_TYPE_F32)
        .addAllShape(List.of(32L, (long) heads))
        .setData(ByteString.copyFrom(table.duplicate()));
    var spec = TensorSpec.newBuilder()
        .setT5(T5.newBuilder()
            .setNumHeads(heads)
            .setBidirectional(true)
            .setTable(TableRef.newBuilder().setInlineTable(inline)))
        .setPair(PairExtent.newBuilder().setQueryLength(length).setKeyLength(length))
        .setOutput(Output.newBuilder().setForm(Form.FORM_DENSE));
    var stream = service
        .withDeadlineAfter(1, TimeUnit.MINUTES)
        .streamTensor(StreamTensorRequest.newBuilder().setSpec(spec).build());
    FloatBuffer values = floats(read(stream));
    check(values.remaining() == heads * length * length, "size");
    for (int head = 0; head < heads; head++) {
      for (int query = 0; query < length; query++) {
        for (int key = 0; key < length; key++) {
          float expected = table.getFloat(4 * (bucket(key - query) * heads + head));
          check(values.get() == expected, "T5's number");
        }
      }
    }
  }

  /** Returns T5's bucket for a relative position: 32 buckets, both directions, distances to 128. */
  private static int bucket(int relative) {
    int distance = Math.abs(relative);
    // 8 + floor(8 log(distance / 8) / log(16)), in integers.
    int log = 8 + 31 - Integer.numberOfLeadingZeros(distance * distance >> 6);
    return (relative > 0 ? 16 : 0) + (distance < 8 ? distance : Math.min(15, log));
  }

  /** Returns the payload of a stream, after checking each chunk. */
  private static ByteBuffer read(Iterator<StreamTensorResponse> stream) {
    ByteBuffer payload = null;
    while (stream.hasNext()) {
      StreamTensorResponse message = stream.next();
      if (payload == null) {
        payload = ByteBuffer.allocate(Math.toIntExact(message.getHeader().getTotalBytes()));
      }
      check(message.getOffset() == payload.position(), "offset");
      check(crc32c(message.getData()) == message.getCrc32C(), "checksum");
      message.getData().copyTo(payload);
    }
    check(!payload.hasRemaining(), "as many bytes as the header says");
    return payload.flip();
  }

  private static void checkError(AttentionBiasServiceBlockingStub service) throws Exception {
    var spec = TensorSpec.newBuilder()
        .setAlibi(Alibi.newBuilder().setNumHeads(-1))
        .setPair(PairExtent.newBuilder().setQueryLength(4).setKeyLength(4));
    try {
      service.getTensor(GetTensorRequest.newBuilder().setSpec(spec).build());
    } catch (StatusRuntimeException error) {
      check(error.getStatus().getCode() == Status.Code.INVALID_ARGUMENT, "code");
      for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
        if (detail.is(BadRequest.class)) {
          var violation = detail.unpack(BadRequest.class).getFieldViolations(0);
          check(violation.getField().equals("spec.alibi.num_heads"), "field");
          return;
        }
      }
    }
    check(false, "an error that names the field");
  }

  /** Returns the contract's unsigned 32-bit checksum as a signed int. */
  private static int crc32c(ByteString data) {
    var checksum = new CRC32C();
    checksum.update(data.asReadOnlyByteBuffer());
    return (int) checksum.getValue();
  }

  private static FloatBuffer floats(ByteBuffer data) {
    return data.order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
  }

  private static void check(boolean right, String what) {
    if (!right) {
      throw new AssertionError("not right: " + what);
    }
  }
}
