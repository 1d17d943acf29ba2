// SPDX-License-Identifier: Apache-2.0
// Uses the service as a JavaScript program that knows only the contract would: checks the answers
// to each kind of call, and exits with 1 if one is wrong.
// Usage: node smoke.js HOST:PORT CA_FILE TOKEN_FILE
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');
const crc32c = require('crc-32/crc32c');

const definitions = protoLoader.loadSync(
  [
    'attnbias/v1/service.proto',
    'google/rpc/error_details.proto',
    'google/rpc/status.proto',
    'grpc/health/v1/health.proto',
  ],
  {
    includeDirs: [path.join(__dirname, '../../../../proto')],
    keepCase: true, // names as in the contract
    longs: Number, // sizes and positions are below 2^53
    enums: String,
    defaults: true,
  },
);
const { attnbias, grpc: { health } } = grpc.loadPackageDefinition(definitions);

// Makes gRPC retry by itself, after the delay in the server's status or, if it has none, the
// policy's.
const serviceConfig = {
  methodConfig: [{
    name: [{ service: 'attnbias.v1.AttentionBiasService' }],
    retryPolicy: {
      maxAttempts: 5,
      initialBackoff: '0.1s',
      maxBackoff: '2s',
      backoffMultiplier: 2,
      retryableStatusCodes: ['RESOURCE_EXHAUSTED', 'UNAVAILABLE'],
    },
  }],
};

function credentials(caFile, tokenFile) {
  const token = grpc.credentials.createFromMetadataGenerator((_, done) => {
    const metadata = new grpc.Metadata();
    metadata.set('authorization', `Bearer ${fs.readFileSync(tokenFile, 'utf8').trim()}`);
    done(null, metadata);
  });
  const tls = grpc.credentials.createSsl(fs.readFileSync(caFile));
  return grpc.credentials.combineChannelCredentials(tls, token);
}

// Throws on a field or enum value unknown to the contract, which proto-loader silently drops.
function check(method, request) {
  const sent = method.requestDeserialize(method.requestSerialize(request));
  assert.partialDeepStrictEqual(sent, request);
}

function call(client, method, request) {
  check(client[method], request);
  return promisify(client[method].bind(client))(request, { deadline: Date.now() + 60_000 });
}

function floats(data) {
  return Float32Array.from({ length: data.length / 4 }, (_, i) => data.readFloatLE(4 * i));
}

async function checkServerInfo(service) {
  const info = await call(service, 'GetServerInfo', {});
  assert.ok(info.encodings.includes('alibi'));
  assert.ok(info.data_types.includes('DATA_TYPE_F32'));
}

async function checkAlibi(service) {
  const spec = {
    alibi: { num_heads: 8 },
    pair: { query_length: 64, key_length: 48, query_offset: 3 },
  };
  const described = await call(service, 'DescribeTensor', { spec });
  const answer = await call(service, 'GetTensor', { spec });
  assert.deepEqual(answer.header, described.header);
  assert.equal(crc32c.buf(answer.data) >>> 0, answer.crc32c);

  const [part] = answer.header.parts;
  const [heads, diagonals] = part.shape;
  assert.deepEqual([part.form, heads, diagonals], ['FORM_TOEPLITZ', 8, 64 + 48 - 1]);
  const values = floats(answer.data);
  for (let head = 0; head < heads; head++) {
    for (let diagonal = 0; diagonal < diagonals; diagonal++) {
      const distance = Math.abs(part.first_relative_position + diagonal);
      assert.ok(values[head * diagonals + diagonal] === -distance * 2 ** -(head + 1));
    }
  }
}

// Returns T5's bucket for a relative position: 32 buckets, both directions, distances to 128.
function bucket(relative) {
  const distance = Math.abs(relative);
  // 8 + floor(8 log(distance / 8) / log(16)), in integers.
  const log = 8 + 31 - Math.clz32((distance * distance) >> 6);
  return (relative > 0 ? 16 : 0) + (distance < 8 ? distance : Math.min(15, log));
}

// Reads the payload of a stream and checks each chunk.
async function read(stream) {
  let header = null;
  let payload = null;
  let received = 0;
  try {
    for await (const message of stream) {
      if (header === null) {
        header = message.header;
        payload = Buffer.alloc(header.total_bytes);
      }
      assert.equal(message.offset, received);
      assert.equal(crc32c.buf(message.data) >>> 0, message.crc32c);
      received += message.data.copy(payload, message.offset);
    }
  } finally {
    stream.cancel(); // has no effect after the end
  }
  assert.equal(received, header.total_bytes);
  return { header, payload };
}

async function checkT5(service) {
  const [heads, length] = [8, 384];
  const table = Float32Array.from({ length: 32 * heads }, (_, i) => i / 7);
  const data = Buffer.alloc(4 * table.length);
  table.forEach((value, i) => data.writeFloatLE(value, 4 * i));
  const spec = {
    t5: {
      num_heads: heads,
      bidirectional: true,
      table: { inline_table: { data_type: 'DATA_TYPE_F32', shape: [32, heads], data } },
    },
    pair: { query_length: length, key_length: length },
    output: { form: 'FORM_DENSE' },
  };
  check(service.StreamTensor, { spec });
  const stream = service.StreamTensor({ spec }, { deadline: Date.now() + 60_000 });
  const { header, payload } = await read(stream);
  assert.deepEqual(header.parts[0].shape, [heads, length, length]);
  const values = floats(payload);
  for (let head = 0, i = 0; head < heads; head++) {
    for (let query = 0; query < length; query++) {
      for (let key = 0; key < length; key++, i++) {
        assert.ok(values[i] === table[bucket(key - query) * heads + head]);
      }
    }
  }
}

// Returns a status's details, keyed by message name.
function details(error) {
  const [bytes] = error.metadata.get('grpc-status-details-bin');
  if (!bytes) return {};
  const status = definitions['google.rpc.Status'].deserialize(bytes);
  return Object.fromEntries(status.details
    .map((any) => [any.type_url.split('/').pop(), any.value])
    .filter(([name]) => name in definitions) // a newer server may send others
    .map(([name, value]) => [name, definitions[name].deserialize(value)]));
}

function checkNames() {
  const { GetTensor } = attnbias.v1.AttentionBiasService.service;
  for (const rotary of [{ head_dims: 8 }, { layout: 'INTERLEAVED' }]) {
    assert.throws(() => check(GetTensor, { spec: { rotary } }), assert.AssertionError);
  }
}

async function checkError(service) {
  const spec = { alibi: { num_heads: -1 }, pair: { query_length: 4, key_length: 4 } };
  const error = await call(service, 'GetTensor', { spec }).then(assert.fail, (error) => error);
  assert.equal(error.code, grpc.status.INVALID_ARGUMENT);
  const [violation] = details(error)['google.rpc.BadRequest'].field_violations;
  assert.equal(violation.field, 'spec.alibi.num_heads');
}

async function main(address, caFile, tokenFile) {
  const channelCredentials = credentials(caFile, tokenFile);
  const checker = new health.v1.Health(address, channelCredentials);
  assert.equal((await call(checker, 'Check', {})).status, 'SERVING');
  const options = { 'grpc.service_config': JSON.stringify(serviceConfig) };
  const service = new attnbias.v1.AttentionBiasService(address, channelCredentials, options);
  checkNames();
  await checkServerInfo(service);
  await checkAlibi(service);
  await checkT5(service);
  await checkError(service);
  checker.close();
  service.close();
}

main(...process.argv.slice(2));
