/**
 * The delivery checker: publishers number their messages, lines break at any moment, topics come
 * and go, and each reader is held to the promise: nothing lost, nothing twice, nothing out of
 * order, unless a gap was told.
 *
 * A run is named by its seed: SEED=7 node --test test/delivery.test.js repeats one. What depends
 * on the network's own timing is not repeated exactly. TEST_BINARY names a real server for it.
 */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connect } from '../stentor.js'
import { RealServer } from './real.js'
import { closing, ending, serve, setPace, sleep, until } from './support.js'

const TOPICS = ['/q/a', '/q/b', '/q/c', '/s/a', '/s/b']
const PATTERNS = [...TOPICS, '/q/*', '/s/**', '/**', '/*/a']
const BINARY = process.env.TEST_BINARY
const STEPS = BINARY ? 100 : 400
const SEEDS = process.env.SEED ? [Number(process.env.SEED)] : BINARY ? [1] : [1, 2, 3]

/** Mulberry32: small, and good enough to choose what goes wrong. */
function random(seed) {
  return (below) => {
    seed = (seed + 0x6d2b79f5) | 0
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % below
  }
}

/** A reader that keeps a log of each topic, and knows what its first value may be. */
class Reader {
  logs = new Map()
  gaps = 0

  constructor(live, pattern) {
    this.pattern = pattern
    this.stop = live.watch(pattern, (n, { topic, id }) => {
      if (!this.logs.has(topic)) this.logs.set(topic, [])
      this.logs.get(topic).push({ n, id, gaps: this.gaps })
    }, { onGap: () => { this.gaps += 1 } })
  }

  /** Numbers are one after the other; where they are not there was a gap, and they still grow. */
  check(newest, context) {
    for (const [topic, log] of this.logs) {
      const numbers = log.map(({ n }) => n)
      const shown = `${context} ${this.pattern} ${topic}: ${numbers} (${this.gaps} gaps)`
      numbers.forEach((n, i) => {
        if (i > 0) assert.ok(n > numbers[i - 1], `twice or out of order: ${shown}`)
        const isGap = i > 0 && log[i].gaps > log[i - 1].gaps
        if (i > 0 && !isGap) assert.equal(n, numbers[i - 1] + 1, `lost: ${shown}`)
      })
      assert.equal(numbers.at(-1), newest.get(topic), `not the newest: ${shown}`)
    }
  }
}

for (const kept of [1000, 4]) {
  for (const transport of ['auto', 'sse', 'websocket', 'poll']) {
    for (const seed of SEEDS) {
      const skip = BINARY && transport === 'websocket' && !globalThis.WebSocket
      test(`${transport}, ${kept} kept, seed ${seed}`, { skip }, () => run(transport, kept, seed))
    }
  }
}

async function run(transport, kept, seed) {
  const choose = random(seed)
  if (BINARY) setPace(10)
  const server = await (BINARY ? ending(new RealServer(BINARY, '/**', kept)) : serve())
  server.kept = kept
  const live = closing(connect(server.url, { transport }))
  const newest = new Map()
  const publish = (topic) => {
    newest.set(topic, (newest.get(topic) ?? 0) + 1)
    return server.publish(topic, newest.get(topic))
  }
  // A topic without a value gives no cursor: what is missed before the first one is not missed.
  for (const topic of TOPICS) await publish(topic)
  const readers = [new Reader(live, '/q/a')]
  const ended = []
  for (let step = 0; step < STEPS; step++) {
    const fate = choose(100)
    if (fate < 70) await publish(TOPICS[choose(TOPICS.length)])
    else if (fate < 80) readers.push(new Reader(live, PATTERNS[choose(PATTERNS.length)]))
    else if (fate < 88 && readers.length > 1) {
      const [reader] = readers.splice(choose(readers.length), 1)
      reader.stop()
      ended.push({ reader, counts: counts(reader) })
    } else if (fate < 91) server.cut()
    else if (fate < 93) server.fault = () => ['refuse', 'hold', 'buffer', undefined][choose(4)]
    else if (fate < 96) server.fault = () => undefined
    else await sleep(choose(12))
  }
  server.fault = () => undefined
  const context = `seed ${seed}, ${transport}`
  const whole = () => readers.every((r) => TOPICS.filter((topic) => meant(r.pattern, topic))
    .every((topic) => r.logs.get(topic)?.at(-1).n === newest.get(topic)))
  await until(whole, `the newest values (${context})`)
  // Who comes now, when nothing is published any more, has what the others have.
  readers.push(...PATTERNS.map((pattern) => new Reader(live, pattern)))
  await until(whole, `the newest values for those who came last (${context})`)
  readers.forEach((reader) => reader.check(newest, context))
  for (const { reader, counts: then } of ended) {
    assert.deepEqual(counts(reader), then, 'a stopped reader hears nothing')
  }
  if (kept === 1000) assert.ok(readers.every(({ gaps }) => !gaps), 'history held everything')
}

const counts = ({ logs }) => [...logs].map(([topic, log]) => [topic, log.length])

function meant(pattern, topic) {
  const [, group, name] = topic.split('/')
  return [topic, `/${group}/*`, `/${group}/**`, '/**', `/*/${name}`].includes(pattern)
}
