// What the tests ask of kafkajs: a request per line on stdin, an answer per line on stdout, as JSON.
//
// Started by test_kafkajs.py with the directory that npm installed into and a broker's address.
// Only `fetch` goes below the public API: a consumer of kafkajs always belongs to a group.

'use strict'

const { createRequire } = require('module')
const path = require('path')
const readline = require('readline')

const [directory, address] = process.argv.slice(2)
const load = createRequire(path.join(directory, 'node_modules', 'here.js'))
const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = load('kafkajs')
const Cluster = load('kafkajs/src/cluster')
const createSocketFactory = load('kafkajs/src/network/socketFactory')
const { createLogger } = load('kafkajs/src/loggers')
const LoggerConsole = load('kafkajs/src/loggers/console')

CompressionCodecs[CompressionTypes.Snappy] = load('kafkajs-snappy')

// One retry or two for a leader that is elected this moment; a refusal should not take long.
const retry = { retries: 3, initialRetryTime: 100 }
const options = { brokers: [address], clientId: 'kafkajs', connectionTimeout: 30000, retry }
const kafka = new Kafka({ ...options, logLevel: logLevel.NOTHING })
const admin = kafka.admin()
const cluster = new Cluster({
  ...options,
  logger: createLogger({ level: logLevel.NOTHING, logCreator: LoggerConsole }),
  socketFactory: createSocketFactory(),
  metadataMaxAge: 300000,
  allowAutoTopicCreation: false,
  isolationLevel: 0,
})

const text = bytes => (bytes == null ? null : bytes.toString())

const record = message => ({
  offset: Number(message.offset),
  timestamp: Number(message.timestamp),
  key: text(message.key),
  value: text(message.value),
  headers: Object.fromEntries(
    Object.entries(message.headers || {}).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.map(text) : text(value),
    ])
  ),
})

const actions = {
  admin: ({ method, argument, more = [] }) => admin[method](argument, ...more),

  async produce({ topic, messages, codec = 'None', acks = -1, batches = 1, ...settings }) {
    const producer = kafka.producer(settings)
    await producer.connect()
    try {
      const compression = CompressionTypes[codec]
      const sent = Array.from({ length: batches }, () =>
        producer.send({ topic, messages, acks, compression })
      )
      return (await Promise.all(sent)).flat()
    } finally {
      await producer.disconnect()
    }
  },

  async fetch({ topic, partition = 0, offset = 0 }) {
    await cluster.connect()
    await cluster.addTargetTopic(topic)
    const leaders = cluster.findLeaderForPartitions(topic, [partition])
    const broker = await cluster.findBroker({ nodeId: Object.keys(leaders)[0] })
    const asked = { partition, fetchOffset: String(offset), maxBytes: 1 << 20 }
    const answer = await broker.fetch({
      replicaId: -1,
      isolationLevel: 0,
      maxWaitTime: 500,
      topics: [{ topic, partitions: [asked] }],
    })
    const [found] = answer.responses[0].partitions
    return { high: Number(found.highWatermark), records: found.messages.map(record) }
  },

  // Members of one group read a topic together until they have `count` messages, and leave.
  async group({ topic, groupId, members, count }) {
    const values = []
    // Its members hear of a rebalance only between two fetches: short ones.
    const settings = { groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 200 }
    const consumers = Array.from({ length: members }, () => kafka.consumer(settings))
    const assigned = consumers.map(
      consumer => new Promise(done => consumer.on(consumer.events.GROUP_JOIN, done))
    )
    await new Promise(async (done, fail) => {
      try {
        for (const consumer of consumers) {
          await consumer.connect()
          await consumer.subscribe({ topics: [topic], fromBeginning: true })
          await consumer.run({
            eachMessage: async ({ message }) => {
              values.push(text(message.value))
              if (values.length === count) done()
            },
          })
        }
      } catch (error) {
        fail(error)
      }
    })
    await Promise.all(assigned)
    // One after the other: two that leave at once disturb each other's departure.
    for (const consumer of consumers) {
      await consumer.stop()
      await consumer.disconnect()
    }
    return values
  },

  async transaction({ topic, groupId, source, offset, messages, commits }) {
    const producer = kafka.producer({ transactionalId: `of-${groupId}`, maxInFlightRequests: 1 })
    await producer.connect()
    try {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages })
      await transaction.sendOffsets({
        consumerGroupId: groupId,
        topics: [{ topic: source, partitions: [{ partition: 0, offset: String(offset) }] }],
      })
      await (commits ? transaction.commit() : transaction.abort())
    } finally {
      await producer.disconnect()
    }
  },
}

const run = async line => {
  const { action, ...given } = JSON.parse(line)
  try {
    return { result: (await actions[action](given)) ?? null }
  } catch (error) {
    // Where it gave up retrying, the reason is the cause; where topics failed, each has its own.
    const faults = [...(error.errors || []), error, error.cause ?? error]
    const types = faults.map(each => each.type).filter(Boolean)
    return { error: { name: error.name, message: error.message, types } }
  }
}

const main = async () => {
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await run(line)) + '\n')
  }
  await cluster.disconnect()
  await admin.disconnect()
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
