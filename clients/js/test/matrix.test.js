/**
 * The client in each runtime, through each proxy, with the real server and with hostile ones, over
 * real sockets and in real time. `TEST_BINARY` names the server. What a host lacks is skipped.
 *
 * `TEST_LINES=dead` adds what takes minutes: lines that die in each state, and hostile servers for
 * a whole minute. It prints its figures.
 */

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { hostile } from './hostile.js'
import { lead, missing as lacksPath, PATHS } from './paths.js'
import { RealServer } from './real.js'
import { missing as lacksRuntime, RUNTIMES, start } from './runtimes.js'
import { HostileServer } from './wire.js'

const BINARY = process.env.TEST_BINARY
const IS_LONG = process.env.TEST_LINES === 'dead'
const TRANSPORTS = ['auto', 'sse', 'poll', 'websocket']
const TOPIC = '/m/a'

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function until(probe, limit_ms, describe) {
  const end_ms = performance.now() + limit_ms
  for (;;) {
    const result = probe()
    if (result) return result
    if (performance.now() > end_ms) throw new Error(`It never came: ${describe()}`)
    await sleep(10)
  }
}

/** Compressing middleware holds back streams that do not forbid it. */
async function transportsFor(path, server) {
  const stop = new AbortController()
  const options = { headers: { Accept: 'text/event-stream' }, signal: stop.signal }
  const { headers } = await fetch(`${server.url}/-/events?topic=${TOPIC}`, options)
  stop.abort()
  const passes = path !== 'express' || headers.get('cache-control').includes('no-transform')
  return passes ? TRANSPORTS : TRANSPORTS.filter((name) => name !== 'sse')
}

/** Runs a reader through a path, and ends all of it. */
async function read({ runtime, path, server, transports = TRANSPORTS }, body) {
  const way = await lead(path, server.url)
  const reader = await start(runtime, { url: way.url, transports, topic: TOPIC })
  const of = (transport) => reader.reports.filter((report) => report.transport === transport)
  const present = () => transports.filter((name) => !of(name).some(({ absent }) => absent))
  const last = (transport) => of(transport).filter((report) => report.state).at(-1)
  const context = () => `${runtime}, ${path}: ${JSON.stringify(transports.map((name) => (
    [name, last(name), values(of(name)).slice(-5)]))).slice(0, 2000)} ${reader.errors}`
  try {
    await body({ of, present, last, context, reports: reader.reports })
  } finally {
    await Promise.all([reader.stop(), way.stop(), server.stop()])
  }
}

const values = (reports) => reports.filter((report) => 'value' in report).map(({ value }) => value)

const skipOf = (runtime, path) => (
  !BINARY ? 'TEST_BINARY names no server' : lacksRuntime(runtime) || lacksPath(path)
)

const SAMPLE = [
  'a page for everything', 'nothing, 204', 'a redirect to itself', 'unauthorized for ever', 'resets',
  'a retry of none and an end', 'a socket that closes', 'the same values at once',
]

describe('the matrix', { concurrency: IS_LONG ? 12 : 4 }, () => {
  for (const runtime of RUNTIMES) {
    for (const path of PATHS) {
      test(`${runtime} reads through ${path}`, { skip: skipOf(runtime, path) }, async () => {
        const server = await new RealServer(BINARY, '/**', 100).start()
        const transports = await transportsFor(path, server)
      await read({ runtime, path, server, transports }, async ({ of, present, context }) => {
          let n = 0
          const publish = () => server.publish(TOPIC, ++n)
          const all = (limit_ms) => until(
            () => present().length > 2 && present().every((name) => values(of(name)).at(-1) === n),
            limit_ms, context)
          await publish()
          await all(20_000)
          for (let i = 0; i < 3; i++) {
            await publish()
            await all(3_000)
          }
          server.fault = () => 'refuse'
          server.cut()
          await publish()
          await publish()
          await sleep(300)
          server.fault = () => undefined
          await publish()
          // Chromium makes a WebSocket that has failed wait. The proxy of Express does not end a
          // stream that its server has cut, so the client must notice the silence.
          await all(path === 'express' ? 60_000 : 20_000)
          for (const name of present()) {
            assert.deepEqual(values(of(name)), Array.from({ length: n }, (_, i) => i + 1), name)
            assert.ok(!of(name).some(({ gap }) => gap), name)
          }
        })
      })
    }
  }

  for (const runtime of RUNTIMES) {
    for (const name of IS_LONG && runtime === 'node' ? Object.keys(hostile) : SAMPLE) {
      if (hostile[name].isLarge) continue
      const span_s = IS_LONG ? 60 : 3
      test(`${runtime} keeps the pace: ${name}`, { skip: skipOf(runtime, 'direct') }, async () => {
        const server = await new HostileServer(hostile[name]).start()
        await read({ runtime, path: 'direct', server }, async ({ reports, context }) => {
          await until(() => server.arrivals_ms.length, 20_000, context)
          await sleep(1_000 * span_s)
          const count = server.arrivals_ms.length
          assert.ok(count <= 5 + span_s / 1.1 + 1, `${count} requests in ${span_s} s`)
          if (IS_LONG) console.log(`${runtime}, ${name}: ${count} requests in ${span_s} s`)
          if (name === SAMPLE[0]) assert.ok(!reports.some(({ state }) => state === 'open'))
        })
      })
    }
  }

  for (const runtime of RUNTIMES) {
    const skip = skipOf(runtime, 'direct') || (!IS_LONG && 'TEST_LINES=dead asks for it')
    test(`${runtime} notices a dead line and comes back`, { skip }, async () => {
      const server = await new RealServer(BINARY, '/**', 100, '').start()
      await read({ runtime, path: 'direct', server }, async ({ of, present, last, context }) => {
        await server.publish(TOPIC, 1)
        await until(() => present().length > 2 && present().every((name) => (
          last(name)?.state === 'open' && values(of(name)).length)), 20_000, context)
        await sleep(3_000)
        const dead_ms = performance.now()
        server.freeze()
        const noticed = (name) => of(name)
          .find(({ state, at_ms }) => state === 'waiting' && at_ms > dead_ms)
        await until(() => present().every(noticed), 60_000, context)
        const notice_s = present().map((name) => [name, (noticed(name).at_ms - dead_ms) / 1000])
        await sleep(5_000)
        server.freeze(false)
        const back_ms = performance.now()
        await server.publish(TOPIC, 2)
        const back = (name) => of(name).find(({ value }) => value === 2)
        await until(() => present().every(back), 20_000, context)
        const back_s = present().map((name) => [name, (back(name).at_ms - back_ms) / 1000])
        console.log(runtime, JSON.stringify({ notice_s, back_s }))
        for (const [name, s] of notice_s) assert.ok(s <= 45, `${name} noticed after ${s} s`)
        for (const [name, s] of back_s) assert.ok(s <= 5, `${name} was back after ${s} s`)
      })
    })
  }
})
